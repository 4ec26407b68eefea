"""Chunking compared with plain tokenising of the same text with the same tokenizer, both on one thread."""

from __future__ import annotations

import time
from collections.abc import Iterator

from tokenizers import Tokenizer

from memagent.chunking import Chunker, chunk_text
from memagent.cli import needle
from memagent.prompts import Neutraliser, PromptSet
from memagent.tokens.local import TokenizerFile
from memagent_bench.perf.measure import Row

PIECE = 65536
CHUNK_TOKENS = 5000
SLICE = 10_000_000
"""Characters per round: both sides are timed in turns, so that a noisy neighbour affects both."""


def book(chars: int | None = None) -> str:
    """Returns the shipped novel, repeated if more characters are wanted than it has."""
    novel = needle.book()
    return novel if chars is None else (novel * (chars // len(novel) + 1))[:chars]


def pieces(text: str) -> Iterator[str]:
    """Yields the text in pieces of 64 Ki characters."""
    return (text[start : start + PIECE] for start in range(0, len(text), PIECE))


def measure(counter: TokenizerFile, tokenizer: Tokenizer, megabytes: int) -> Row:
    """Measures the speed of chunking as a share of the tokenizer's own `encode`, one value per 10 MB slice."""
    text = book(SLICE)
    neutralise = Neutraliser(dict(PromptSet.load("plain").tags).values(), counter.control_tokens)
    ratios: list[float] = []
    for _ in range(max(1, megabytes // 10)):
        start = time.perf_counter()
        encoded = sum(
            len(tokenizer.encode(piece, add_special_tokens=False)) for piece in pieces(text)
        )
        plain = time.perf_counter() - start
        start = time.perf_counter()
        chunker = Chunker(counter, CHUNK_TOKENS, neutralise=neutralise)
        cut = sum(chunk.tokens for chunk in chunk_text(pieces(text), chunker))
        ratios.append(plain / (time.perf_counter() - start))
        assert abs(cut - encoded) < encoded * 0.01, "both sides saw the same tokens"
    what = f"chunking {len(ratios) * 10} MB ({counter.name}), speed against `encode`"
    return Row(what, ratios, least=0.8)
