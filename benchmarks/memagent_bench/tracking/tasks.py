"""The tracking tasks by name, and how their samples are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from memagent.tasks import Sample
from memagent_bench.options import DataOptions, MakeTask
from memagent_bench.tracking.chain import chain
from memagent_bench.tracking.counter import counter
from memagent_bench.tracking.facts import facts
from memagent_bench.tracking.ledger import ledger
from memagent_bench.tracking.puzzle import Layout, Puzzle
from memagent_bench.tracking.scattered import ScatteredTask
from memagent_bench.tracking.tally import tally

ROOM = 256
"""Tokens of filler wanted besides the facts: a sentence may be long."""


@dataclass(frozen=True)
class Kind:
    """What distinguishes one task from the others."""

    make: Callable[[Random, int], Puzzle]
    """Multiple of the facts of a short document -> the facts and the question."""
    scorer: str
    generate: int
    """Maximum tokens of a reply."""
    label: str
    """Name of its data in records."""


KINDS: dict[str, Kind] = {
    "ledger": Kind(ledger, "string_match_all", 64, "last write wins"),
    "counter": Kind(counter, "number_match", 32, "running counters"),
    "chain": Kind(chain, "string_match_all", 32, "multi-hop chains"),
    "tally": Kind(tally, "number_match", 32, "aggregation, in OOLONG's spirit"),
    "facts": Kind(facts, "string_match_all", 32, "BABILong-style"),
}
"""Kinds by name. No single passage contains the answer."""

SHORT = 8192
"""Tokens of a document with as many facts as its task says. A longer one has proportionally more (except `chain`),
500 to 1,400 tokens per 8K: from 128K on they don't fit a window of 8K, and a search can't show a model all of them.
Nested documents have the same facts at all lengths."""


class TrackingTask(ScatteredTask):
    """Facts of one kind, at places drawn for each sample.

    Args:
        name: one of `KINDS`.
        length: tokens of a sample, reply included.
        options: the essays are the filler.
    """

    def __init__(self, name: str, length: int, options: DataOptions) -> None:
        kind = KINDS[name]
        super().__init__(name, kind.scorer, kind.generate, length, options)
        self._kind = kind

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        return {**super().facts, "kind": self._kind.label}

    def _make(self, index: int, limit: int) -> Sample:
        seed = f"{self._options.seed} tracking {self.name} {index}"
        rng = Random(seed if self._options.nested else f"{seed} {self._length}")
        times = 1 if self._options.nested else max(1, self._length // SHORT)
        puzzle = self._kind.make(rng, times)
        layout = Layout.draw(len(puzzle.facts), len(self._filler), rng)
        before = f"{puzzle.about} Keep track of them: you are asked about them at the end.\n\n"
        after = f"\n\n{puzzle.question}\nAnswer:"
        sample = self._scatter(index, limit, puzzle, layout, (before, after))
        if sample.tokens > limit:
            raise self._too_short(index, sample.tokens + ROOM)
        return sample


TASKS: dict[str, MakeTask] = {name: partial(TrackingTask, name) for name in KINDS}
"""Tasks by name."""
