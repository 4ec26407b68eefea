"""The books that policies are trained on, and those they are measured on."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from memagent_bench.haystacks import essays
from memagent_bench.length_tokens import length_counter

_FOLDER = Path(__file__).with_name("books")
TRAINING = tuple(
    _FOLDER / f"{name}.txt.gz"
    for name in ("anna_karenina", "bleak_house", "brothers_karamazov", "les_miserables")
)
"""Excerpts, like the other books; public domain."""
MEASURING = tuple(
    _FOLDER / f"{name}.txt.gz"
    for name in ("david_copperfield", "don_quixote", "middlemarch", "moby_dick", "war_and_peace")
)
"""Books never used in training."""


@lru_cache(maxsize=2)
def sentences_of(books: tuple[Path, ...]) -> list[str]:
    """Returns all sentences of the books."""
    filler = essays(books, length_counter(None))
    return filler.take(0, len(filler))
