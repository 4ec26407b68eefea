"""The tracking tasks by name, and how their samples are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from memagent.tasks import Evidence, Sample
from memagent_bench.fitted import FittedTask
from memagent_bench.haystacks import essays
from memagent_bench.options import DataOptions, MakeTask
from memagent_bench.placed import Placed
from memagent_bench.tracking.chain import chain
from memagent_bench.tracking.counter import counter
from memagent_bench.tracking.facts import facts
from memagent_bench.tracking.ledger import ledger
from memagent_bench.tracking.puzzle import Fact, Layout, Puzzle
from memagent_bench.tracking.tally import tally

ROOM = 256
"""Tokens of filler that are wanted beside the facts: a sentence may be long."""


@dataclass(frozen=True)
class Kind:
    """What makes one task differ from the others."""

    make: Callable[[Random, int], Puzzle]
    """How many times as many facts as in a short document -> the facts and the question."""
    scorer: str
    generate: int
    """Tokens that a reply may have."""
    label: str
    """What records call its data."""


KINDS: dict[str, Kind] = {
    "ledger": Kind(ledger, "string_match_all", 64, "last write wins"),
    "counter": Kind(counter, "number_match", 32, "running counters"),
    "chain": Kind(chain, "string_match_all", 32, "multi-hop chains"),
    "tally": Kind(tally, "number_match", 32, "aggregation, in OOLONG's spirit"),
    "facts": Kind(facts, "string_match_all", 32, "BABILong-style"),
}
"""By name. No passage by itself tells the answer."""

SHORT = 8192
"""Tokens of a document with as many facts as its task names. A longer one has in proportion more of them (`chain` has
not), 500 to 1,400 tokens in each 8K: from 128K on they do not fit a window of 8K, and a search cannot show a model all
of them. Nested documents have the same facts at all lengths."""


class TrackingTask(FittedTask):
    """Facts of one kind, scattered over the sentences of books, at places drawn for each sample.

    Args:
        name: in `KINDS`.
        length: tokens of a sample, reply included.
        options: the essays are the filler.
    """

    def __init__(self, name: str, length: int, options: DataOptions) -> None:
        super().__init__(name, KINDS[name].scorer, length, options)
        self._kind = KINDS[name]
        self._filler = essays(options.essays, options.counter)

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        return {
            **super().facts,
            "kind": self._kind.label,
            "wording": "memagent",
            "haystack": self._filler.name,
            "rounds": self._filler.rounds(self._filler.within(self._length)),
            "positions": "shuffled",
        }

    def _made(self, index: int, limit: int) -> Sample:
        seed = f"{self._options.seed} tracking {self.name} {index}"
        rng = Random(seed if self._options.nested else f"{seed} {self._length}")
        times = 1 if self._options.nested else max(1, self._length // SHORT)
        puzzle = self._kind.make(rng, times)
        layout = Layout.draw(len(puzzle.facts), len(self._filler), rng)
        before = f"{puzzle.about} Keep track of them: you are asked about them at the end.\n\n"
        after = f"\n\n{puzzle.question}\nAnswer:"
        placed, tokens = self._filled(puzzle.facts, layout, (before, after), limit)
        if tokens > limit:
            raise self._too_short(index, tokens + ROOM)
        context, spans = placed.joined(self._filler.joiner)
        return Sample(
            task=self.name,
            index=index,
            length=self._length,
            tokens=tokens,
            context=context,
            question=f"{puzzle.about} {puzzle.question}",
            outputs=puzzle.outputs,
            generate=self._kind.generate,
            before=before,
            after=after,
            evidence=tuple(
                Evidence(start=start, end=end, supports=fact.supports, notes=fact.notes)
                for fact, (start, end) in zip(puzzle.facts, spans, strict=True)
                if fact.supports
            ),
        )

    def _filled(
        self, facts: Sequence[Fact], layout: Layout, around: tuple[str, str], limit: int
    ) -> tuple[Placed, int]:
        """The facts among as many units of filler as fit, at least one; and the sample's tokens."""
        filler = self._filler
        own = sum(filler.cost(fact.text) for fact in facts) + self._kind.generate
        skipped = filler.tokens(layout.start)
        n = max(1, filler.within(skipped + limit - own) - layout.start)
        while True:
            placed = layout.among(facts, filler, n)
            units = filler.tokens(layout.start + n) - skipped
            tokens = own + units + filler.ends(around[0], placed.first, placed.last, around[1])
            if tokens <= limit or n == 1:
                return placed, tokens
            n -= 1


TASKS: dict[str, MakeTask] = {name: partial(TrackingTask, name) for name in KINDS}
"""By name."""
