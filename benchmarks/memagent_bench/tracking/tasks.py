"""The tracking tasks by name, and how their samples are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from memagent.errors import ConfigError
from memagent.tasks import Evidence, Sample
from memagent_bench.haystacks import essays
from memagent_bench.lengths import K
from memagent_bench.options import DataOptions, MakeTask
from memagent_bench.tracking.chain import chain
from memagent_bench.tracking.counter import counter
from memagent_bench.tracking.facts import facts
from memagent_bench.tracking.ledger import ledger
from memagent_bench.tracking.puzzle import Fact, Layout, Puzzle, scatter
from memagent_bench.tracking.tally import tally

PROBE = 64 * K
"""Tokens of the text that tells whether sums are exact: some 2,000 joints."""
ROOM = 512
"""Tokens of filler that make a text of facts alone a document."""


@dataclass(frozen=True)
class Kind:
    """What makes one task differ from the others."""

    make: Callable[[Random], Puzzle]
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
"""How many facts a document has is fixed by its task; a longer one has more filler between them."""


class TrackingTask:
    """Facts of one kind, scattered over the sentences of books.

    Args:
        name: in `TASKS`.
        length: tokens of a sample, reply included.
        options: the essays are the filler; positions are drawn for each sample in any case.
    """

    def __init__(self, name: str, length: int, options: DataOptions) -> None:
        self.name, self.length = name, length
        self._kind, self._options = KINDS[name], options
        self._filler = essays(options.essays, options.counter)

    @property
    def scorer(self) -> str:
        """See `Task`."""
        return self._kind.scorer

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        return {
            "kind": self._kind.label,
            "wording": "memagent",
            "haystack": self._filler.name,
            "rounds": self._filler.rounds(self._filler.within(self.length)),
            "positions": "drawn for each sample",
            "nested": self._options.nested,
            "length_tokenizer": self._options.counter.name,
        }

    def sample(self, index: int) -> Sample:
        """See `Task`. Linear in the length; where sums are exact, nothing but the facts is tokenised again."""
        count, target = self._options.counter.count, self.length * self._scale
        while True:
            sample = self._made(index, int(target))
            if self._scale == 1.0:
                return sample
            tokens = count(sample.prompt) + sample.generate
            if tokens <= self.length:
                return sample.model_copy(update={"tokens": tokens})
            target -= tokens - self.length

    @cached_property
    def _scale(self) -> float:
        """Tokens by adding up sentences, for each token of the whole; 1.0 where sums are exact.

        Tokenizers that split at white space pass; with another one each sample is tokenised whole.
        """
        probe = self._made(0, min(self.length, PROBE))
        return probe.tokens / (self._options.counter.count(probe.prompt) + probe.generate)

    def _made(self, index: int, limit: int) -> Sample:
        """A sample of at most `limit` tokens by adding up its parts."""
        seed = f"{self._options.seed} tracking {self.name} {index}"
        rng = Random(seed if self._options.nested else f"{seed} {self.length}")
        puzzle = self._kind.make(rng)
        layout = Layout.draw(len(puzzle.facts), len(self._filler), rng)
        before = f"{puzzle.about} Keep track of them: you are asked about them at the end.\n\n"
        after = f"\n\n{puzzle.question}\nAnswer:"
        n, tokens = self._fill(puzzle.facts, layout, (before, after), limit)
        context, spans = scatter(puzzle.facts, layout, self._filler, n)
        return Sample(
            task=self.name,
            index=index,
            length=self.length,
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

    def _fill(
        self, facts: Sequence[Fact], layout: Layout, around: tuple[str, str], limit: int
    ) -> tuple[int, int]:
        """Units of filler in a sample of at most `limit` tokens, and its tokens."""
        filler, start = self._filler, layout.start
        before, after = around
        own = sum(filler.cost(fact.text) for fact in facts) + self._kind.generate
        skipped = filler.tokens(start)
        n = filler.within(skipped + limit - own) - start
        while n > 0:
            first, last = facts[0].text, facts[-1].text
            if int(layout.places[0] * (n + 1)) > 0:
                first = filler.take(start, start + 1)[0]
            if int(layout.places[-1] * (n + 1)) < n:
                last = filler.take(start + n - 1, start + n)[0]
            units = own + filler.tokens(start + n) - skipped
            tokens = units + filler.ends(before, first, last, after)
            if tokens <= limit:
                return n, tokens
            n -= 1
        needed = own + filler.ends(before, facts[0].text, facts[-1].text, after)
        raise ConfigError(
            f"length {self.length!r} is too short for task {self.name!r}: its {len(facts)} facts, question and reply "
            f"take {needed} tokens without any filler; use {least(needed)} or more"
        )


def least(needed: int) -> int:
    """A length with room for some filler beside `needed` tokens, in whole thousands of 1024."""
    return -(-(needed + ROOM) // K) * K


def _maker(name: str) -> MakeTask:
    return lambda length, options: TrackingTask(name, length, options)


TASKS: dict[str, MakeTask] = {name: _maker(name) for name in KINDS}
"""By name."""
