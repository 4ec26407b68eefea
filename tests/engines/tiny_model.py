"""Makes a tiny Qwen2 model with random weights, for an engine to serve. It says nothing sensible.

Run by the python of an engine's venv: python tests/engines/tiny_model.py FOLDER [SEED]. The weights come
from a fixed seed, so the engines serve the same model. Another seed gives other weights, and an output
layer of its own.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

TOKENIZER = Path(__file__).resolve().parents[1] / "data" / "tokenizer"
SEED = 20260101
WINDOW = 8192

# The template of tests/data/tokenizer ends here; Qwen3's goes on with an empty think block when the
# caller switches thinking off.
GENERATION_PROMPT = '{{- "<|im_start|>assistant\\n" -}}\n'
NO_THINKING = """\
{%- if enable_thinking is defined and enable_thinking is false -%}
{{- "<think>\\n\\n</think>\\n\\n" -}}
{%- endif -%}
"""
# Its messages end so; those of templates with tools write the calls before the end of the turn.
END_OF_MESSAGE = '~ message.content ~ eos_token ~ "\\n" -}}\n'
CALLS = """\
~ message.content -}}
{%- for call in message.tool_calls or [] -%}
{{- '\\n<tool_call>\\n{"name": "' ~ call.function.name ~ '", "arguments": ' -}}
{{- call.function.arguments | tojson ~ "}\\n</tool_call>" -}}
{%- endfor -%}
{{- eos_token ~ "\\n" -}}
"""
TOOLS = """\
{%- if tools -%}
{{- "<|im_start|>system\\n# Tools\\n" -}}
{%- for tool in tools -%}
{{- tool | tojson ~ "\\n" -}}
{%- endfor -%}
{{- 'Call one with <tool_call>{"name": ..., "arguments": ...}</tool_call>.' ~ eos_token ~ "\\n" -}}
{%- endif -%}
"""


def chat_settings() -> dict[str, Any]:
    """Returns the tokenizer's settings with a template that honours `enable_thinking` and knows tools."""
    settings = json.loads((TOKENIZER / "tokenizer_config.json").read_text(encoding="utf-8"))
    template: str = settings["chat_template"]
    changes = ((GENERATION_PROMPT, GENERATION_PROMPT + NO_THINKING), (END_OF_MESSAGE, CALLS))
    for old, new in changes:
        if template.count(old) != 1:
            raise SystemExit(
                f"the template of {TOKENIZER} does not have {old!r} once: change this file together with it"
            )
        template = template.replace(old, new)
    settings["chat_template"] = TOOLS + template
    settings["model_max_length"] = WINDOW
    return settings


def main(folder: Path, seed: int = SEED) -> None:
    """Writes weights, configuration, tokenizer and template into the folder."""
    # Here, because only an engine's venv has them.
    import torch  # pyright: ignore[reportMissingImports]
    from transformers import (  # pyright: ignore[reportMissingImports]
        GenerationConfig,
        Qwen2Config,
        Qwen2ForCausalLM,
    )
    from transformers.utils import logging  # pyright: ignore[reportMissingImports]

    logging.disable_progress_bar()

    content = json.loads((TOKENIZER / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary: dict[str, int] = content["model"]["vocab"]
    settings = chat_settings()
    end, pad = vocabulary[settings["eos_token"]], vocabulary[settings["pad_token"]]

    torch.manual_seed(seed)
    config = Qwen2Config(
        # No padding: an id above the tokenizer's last would have no text.
        vocab_size=len(vocabulary),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        # Heads of 32 values: the smallest that the CPU attention of both engines takes.
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=WINDOW,
        tie_word_embeddings=seed == SEED,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=pad,
    )
    model = Qwen2ForCausalLM(config).to(torch.float32)
    model.generation_config = GenerationConfig(eos_token_id=end, pad_token_id=pad)

    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    shutil.copy(TOKENIZER / "tokenizer.json", folder)
    (folder / "tokenizer_config.json").write_text(
        json.dumps(settings, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
