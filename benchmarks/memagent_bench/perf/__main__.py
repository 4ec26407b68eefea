"""`make bench`: measures, prints a Markdown table, exits with 1 where a target is missed.

Usage: python -m memagent_bench.perf [--tokenizer FILE] [--megabytes N] [--write docs/performance.md]
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from tokenizers import Tokenizer

from memagent.tokens.local import TokenizerFile
from memagent_bench.perf import chunks, loop, process
from memagent_bench.perf.measure import SMALL_TOKENIZER, Row, page_parser, publish


def main() -> int:
    """Runs all measurements in one process tree on one machine."""
    parser = page_parser(__doc__)
    parser.add_argument("--tokenizer", type=Path, default=SMALL_TOKENIZER)
    parser.add_argument("--megabytes", type=int, default=100)
    arguments = parser.parse_args()
    raw = arguments.tokenizer.read_bytes()
    tokenizer = Tokenizer.from_buffer(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    rows: list[Row] = [process.startup()]
    rows += loop.measure()
    rows.append(chunks.measure(TokenizerFile(arguments.tokenizer), tokenizer, arguments.megabytes))
    rows += process.memory()
    return publish(rows, "make bench", arguments.write)


if __name__ == "__main__":
    sys.exit(main())
