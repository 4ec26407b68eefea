"""Facts with a question about them, and their places in a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from memagent_bench.filler import Filler
from memagent_bench.placement import Placement


@dataclass(frozen=True)
class Fact:
    """One sentence of a puzzle."""

    text: str
    notes: tuple[str, ...] = ()
    """See `memagent.tasks.Evidence`; computed values are included."""
    supports: tuple[int, ...] = ()
    """References that require it; empty for a fact that isn't evidence."""


@dataclass(frozen=True)
class Puzzle:
    """A document's content besides its filler, and the question."""

    facts: Sequence[Fact]
    """Facts in document order."""
    about: str
    """Introduction to the facts: one or two sentences, or empty."""
    question: str
    """The question, and the form of the reply."""
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """Places of the facts in a document, whatever its length."""

    start: int
    """Index of the filler unit that the document begins with."""
    places: tuple[float, ...]
    """For each fact, the share of the filler before it, ascending, in [0, 1)."""

    @classmethod
    def draw(cls, facts: int, units: int, rng: Random) -> Layout:
        """Draws uniform places, and a uniform start among the filler's units."""
        return cls(1 + rng.randrange(units), tuple(sorted(rng.random() for _ in range(facts))))

    def among(self, facts: Sequence[Fact], filler: Filler, n: int) -> Placement:
        """Places the facts among n units of filler."""
        units = filler.take(self.start, self.start + n)
        cuts = [int(place * (n + 1)) for place in self.places]
        return Placement(units, [fact.text for fact in facts], cuts)
