"""Makes tests/data/tokenizer: a small byte-level BPE with ChatML control tokens.

Run from the repository's root: python tests/data/make_tokenizer.py [BOOK.txt.gz]. The book is the
public-domain sample that the package ships; the result is the same on every machine.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = Path(__file__).parent
BOOK = HERE.parents[1] / "src/memagent/samples/war_and_peace.txt.gz"
ENTRIES = 2000
CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

# Words apart from their punctuation, single digits, line ends by themselves: the shape that current
# open models use, so that the tests meet the same boundaries.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHATML = """\
{%- for message in messages -%}
{%- if message.role not in ["system", "user", "assistant", "tool"] -%}
{{- raise_exception("unknown role " ~ message.role) -}}
{%- endif -%}
{{- "<|im_start|>" ~ message.role ~ "\\n" ~ message.content ~ eos_token ~ "\\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- "<|im_start|>assistant\\n" -}}
{%- endif -%}
"""


def main(book: Path) -> None:
    """Trains on the book's words and writes the two files."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    text = gzip.decompress(book.read_bytes()).decode("utf-8")
    trainer = trainers.BpeTrainer(
        vocab_size=ENTRIES,
        special_tokens=CONTROL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(re.split(r"(?<=\n)\n+", text), trainer)
    folder = HERE / "tokenizer"
    folder.mkdir(exist_ok=True)
    content = json.loads(tokenizer.to_str())
    (folder / "tokenizer.json").write_text(
        json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8"
    )
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "chat_template": CHATML,
    }
    (folder / "tokenizer_config.json").write_text(
        json.dumps(settings, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else BOOK)
