"""Facts with a question about them, and how they are scattered over a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from memagent_bench.filler import Filler


@dataclass(frozen=True)
class Fact:
    """One sentence of a puzzle."""

    text: str
    notes: tuple[str, ...] = ()
    """See `memagent.tasks.Evidence`; a computed value stands here too."""
    supports: tuple[int, ...] = ()
    """References that cannot be known without it; empty for a fact that is no evidence."""


@dataclass(frozen=True)
class Puzzle:
    """What a document says beside its filler, and what is asked."""

    facts: Sequence[Fact]
    """In the order of the document."""
    about: str
    """What the facts are: one or two sentences."""
    question: str
    """What is asked, and the form of the reply."""
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """Where the facts of a document lie, whatever its length."""

    start: int
    """The filler unit that the document begins with."""
    places: tuple[float, ...]
    """For each fact the share of the filler that stands before it, ascending, in [0, 1)."""

    @classmethod
    def draw(cls, facts: int, units: int, rng: Random) -> Layout:
        """Uniform places, and a uniform beginning among the filler's units."""
        return cls(1 + rng.randrange(units), tuple(sorted(rng.random() for _ in range(facts))))


def scatter(
    facts: Sequence[Fact], layout: Layout, filler: Filler, n: int
) -> tuple[str, list[tuple[int, int]]]:
    """The document: facts between n units of filler, everything with the filler's joiner between.

    Returns:
        The text, and first character and one past the last one of each fact.
    """
    joiner = filler.joiner
    parts: list[str] = []
    spans: list[tuple[int, int]] = []
    chars = done = 0
    for fact, place in zip(facts, layout.places, strict=True):
        upto = int(place * (n + 1))
        if upto > done:
            parts.append(joiner.join(filler.take(layout.start + done, layout.start + upto)))
            chars += len(parts[-1]) + len(joiner)
            done = upto
        spans.append((chars, chars + len(fact.text)))
        parts.append(fact.text)
        chars += len(fact.text) + len(joiner)
    if done < n:
        parts.append(joiner.join(filler.take(layout.start + done, layout.start + n)))
    return joiner.join(parts), spans
