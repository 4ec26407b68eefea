"""Facts with a question about them, and where they lie in a text."""

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
    """See `memagent.tasks.Evidence`; a computed value stands here too."""
    supports: tuple[int, ...] = ()
    """References that require it; empty for a fact that isn't evidence."""


@dataclass(frozen=True)
class Puzzle:
    """What a document says beside its filler, and what is asked."""

    facts: Sequence[Fact]
    """In the order of the document."""
    about: str
    """What the facts are: one or two sentences, or nothing."""
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

    def among(self, facts: Sequence[Fact], filler: Filler, n: int) -> Placement:
        """The facts among n units of filler."""
        units = filler.take(self.start, self.start + n)
        cuts = [int(place * (n + 1)) for place in self.places]
        return Placement(units, [fact.text for fact in facts], cuts)
