"""Converts a GGUF file of a Llama model to an ordinary model folder."""

import contextlib
import io
import os
import re
from pathlib import Path
from textwrap import shorten
from typing import Any

import torch
from gguf import GGUFReader
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from memagent.errors import FetchFailed


def convert(gguf: Path, folder: Path) -> None:
    """Writes the weights (bfloat16), tokenizer and chat template of a Llama model, in the format of `save_pretrained`.

    Raises:
        FetchFailed: transformers can't read the file.
    """
    try:
        # Not all progress bars obey transformers' own setting.
        with contextlib.redirect_stderr(io.StringIO()):
            tokenizer: Any = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
            source_model: Any = AutoModelForCausalLM.from_pretrained(
                gguf.parent, gguf_file=gguf.name, dtype=torch.float32
            )
            # A model loaded from GGUF can't be saved: its config says that it is quantised.
            config = source_model.config.to_dict()
            config.pop("quantization_config", None)
            config.pop("_name_or_path", None)
            model = LlamaForCausalLM(LlamaConfig.from_dict(config))
            model.load_state_dict(source_model.state_dict())
            model.generation_config = source_model.generation_config
            model.to(torch.bfloat16).save_pretrained(folder)  # pyright: ignore[reportArgumentType]
            if _split(gguf) == "smollm":
                # transformers doesn't split digits, so blanks before them would be tokenised differently.
                digits, words = Digits(individual_digits=True), ByteLevel(add_prefix_space=False)
                tokenizer.backend_tokenizer.pre_tokenizer = Sequence([digits, words])
            tokenizer.model_max_length = config["max_position_embeddings"]
            tokenizer.save_pretrained(folder)
    except OSError:
        raise
    except Exception as error:  # anything that gguf, transformers or torch may raise
        # safetensors and tokenizers, which are written in Rust, report a full disk like this.
        if match := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(match[1]), os.strerror(int(match[1]))) from error
        message = shorten(str(error) or type(error).__name__, 160, placeholder="…")
        raise FetchFailed(
            f"{gguf.name!r} cannot be read as a GGUF file of a Llama model ({message}): download it again, or name "
            f"a model folder"
        ) from error


def _split(gguf: Path) -> str:
    """Returns how llama.cpp would split a text before it looks for tokens."""
    field = GGUFReader(gguf).get_field("tokenizer.ggml.pre")
    return "" if field is None else field.contents()
