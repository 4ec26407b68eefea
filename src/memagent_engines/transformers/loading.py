"""Loads a causal LM and its tokenizer, with clear errors for those that can't be used."""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any, Literal

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging

from memagent.errors import ConfigError, DeviceFull
from memagent.tokens import TokenizerFile
from memagent_engines.transformers.adapter import merge_adapter

Dtype = Literal["float32", "bfloat16", "float16"]
UNALLOCATED = re.compile(
    r"out of memory|can't allocate memory|not enough memory|CUBLAS_STATUS_ALLOC_FAILED"
)
"""torch's message in a plain RuntimeError, for devices other than CUDA and for main memory."""


def load(
    name: str,
    *,
    device: str | None = None,
    dtype: Dtype | None = None,
    adapter: Path | None = None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads the model, ready to draw, and its tokenizer. Blocks, for long if the weights are large.

    Args:
        name: a folder in the format of `save_pretrained`, or a name on the hub.
        device: torch's name for it; None: CUDA if available, else the CPU.
        dtype: dtype of the weights. None uses the checkpoint's own on a GPU, and float32 on a CPU: most CPUs lack
            half-precision arithmetic and would convert at each step, which is slower and less accurate.
        adapter: folder of a LoRA adapter to merge into the weights; `name` must then be a folder.

    Raises:
        ConfigError: there is no such model, a part of it is missing, or its parts don't match.
        DeviceFull: the weights don't fit.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    load_dtype: Any = dtype or ("float32" if torch.device(device).type == "cpu" else "auto")
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # they would go to standard error while weights are read
    try:
        tokenizer = _load_tokenizer(name)
        result: Any = AutoModelForCausalLM.from_pretrained(
            name, dtype=load_dtype, output_loading_info=True, trust_remote_code=False
        )
        model, loading_info = result
        model = model.to(device).eval()
    except Exception as error:  # anything that a hub, a file, a config or torch may raise
        message = shorten(str(error) or type(error).__name__, 160, placeholder="…")
        if is_out_of_memory(error):
            raise DeviceFull(
                f"the weights of {name!r} do not fit {device!r} ({message}): use a smaller model",
                attempts=0,
            ) from error
        raise ConfigError(
            f"{name!r} cannot be loaded as a transformers causal LM ({message}): give a folder as "
            f"save_pretrained writes it, with weights and tokenizer, or a name on the hub"
        ) from error
    finally:
        if bars:
            logging.enable_progress_bar()
    check_whole(name, loading_info)
    rows = model.get_input_embeddings().weight.shape[0]
    if len(tokenizer) > rows:
        raise ConfigError(
            f"the tokenizer of {name!r} has {len(tokenizer)} tokens, but the model only {rows}: give it its original "
            f"tokenizer"
        )
    if adapter is not None:
        merge_adapter(model, Path(name), adapter)
    return model, tokenizer


def check_whole(name: str, info: Mapping[str, Any]) -> None:
    """Raises a `ConfigError` if tensors were missing; transformers initialises these at random.

    Args:
        name: name of the model.
        info: what `from_pretrained` returns for `output_loading_info`.
    """
    if missing := sorted(info["missing_keys"]):
        raise ConfigError(
            f"the weights of {name!r} lack {len(missing)} tensors, such as {missing[0]!r}: they don't belong to the "
            f"model that its config.json describes"
        )


def load_counter(name: str) -> TokenizerFile:
    """Loads the `prompt_counter` of a model's tokenizer; if there is none, transformers may raise anything."""
    return prompt_counter(_load_tokenizer(name), name)


def text_counter(tokenizer: PreTrainedTokenizerBase) -> TokenizerFile:
    """Converts the tokenizer to a memagent counter. Blocks for up to a second: it goes through a file.

    Raises:
        ConfigError: the tokenizer is a slow one.
        TokenizerError: memagent can't use it.
    """
    with tempfile.TemporaryDirectory(prefix="memagent-") as folder:
        tokenizer.save_pretrained(folder)
        if not Path(folder, "tokenizer.json").is_file():
            raise slow_tokenizer(tokenizer)
        return TokenizerFile(folder)


def slow_tokenizer(tokenizer: PreTrainedTokenizerBase) -> ConfigError:
    """Returns the error for a tokenizer that can't be written as a `tokenizer.json`."""
    return ConfigError(
        f"the tokenizer {type(tokenizer).__name__} is a slow one: memagent needs a tokenizer.json; convert it "
        f"(AutoTokenizer.from_pretrained(..., use_fast=True), then save_pretrained)"
    )


def prompt_counter(tokenizer: PreTrainedTokenizerBase, name: str) -> TokenizerFile:
    """Makes a counter that renders prompts, of the tokenizer of model `name`. Raises a `ConfigError` if it can't."""
    counter = text_counter(tokenizer)
    if not counter.exact:
        raise ConfigError(
            f"the tokenizer of {name!r} has no chat template: set tokenizer.chat_template, or use the "
            f"model's instruct variant, whose tokenizer has one"
        )
    return counter


def _load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    # Without this setting, transformers asks on standard input whether to run a model's own code.
    return AutoTokenizer.from_pretrained(name, trust_remote_code=False)


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an error means that a device or the machine is out of memory."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and UNALLOCATED.search(str(error)) is not None
    )
