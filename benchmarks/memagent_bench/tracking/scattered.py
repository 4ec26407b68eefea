"""Tasks whose samples are facts scattered over the sentences of books."""

from __future__ import annotations

from memagent.tasks import Evidence, Sample
from memagent_bench.fitted import FittedTask
from memagent_bench.haystacks import essays
from memagent_bench.options import DataOptions
from memagent_bench.placement import Placement
from memagent_bench.tracking.puzzle import Layout, Puzzle


class ScatteredTask(FittedTask):
    """Shared by such tasks: the filler, and how a puzzle becomes a sample.

    Args:
        name: of the task.
        scorer: one of `memagent.tasks.SCORERS`.
        generate: maximum tokens of a reply.
        length: tokens of a sample, reply included.
        options: the essays are the filler.

    Raises:
        DocumentError, ConfigError: see `essays`.
    """

    def __init__(
        self, name: str, scorer: str, generate: int, length: int, options: DataOptions
    ) -> None:
        super().__init__(name, scorer, length, options)
        self._generate = generate
        self._filler = essays(options.essays, options.counter)

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        return {
            **super().facts,
            "wording": "memagent",
            "haystack": self._filler.name,
            "rounds": self._filler.rounds(self._filler.within(self._length)),
            "positions": "shuffled",
        }

    def _scatter(
        self, index: int, limit: int, puzzle: Puzzle, layout: Layout, around: tuple[str, str]
    ) -> Sample:
        """Makes the sample; its tokens exceed `limit` if the facts and one unit of filler alone do.

        Args:
            index: of the sample.
            limit: tokens, including those of the reply.
            puzzle: the facts and the question.
            layout: the places of the facts.
            around: text of the one-shot prompt before and after the document.
        """
        placed, tokens = self._fill(puzzle, layout, around, limit)
        context, spans = placed.join(self._filler.joiner)
        return Sample(
            task=self.name,
            index=index,
            length=self._length,
            tokens=tokens,
            context=context,
            question=f"{puzzle.about} {puzzle.question}".strip(),
            outputs=puzzle.outputs,
            generate=self._generate,
            before=around[0],
            after=around[1],
            evidence=tuple(
                Evidence(start=start, end=end, supports=fact.supports, notes=fact.notes)
                for fact, (start, end) in zip(puzzle.facts, spans, strict=True)
                if fact.supports
            ),
            competing=tuple(
                start
                for fact, (start, _) in zip(puzzle.facts, spans, strict=True)
                if not fact.supports
            ),
        )

    def _fill(
        self, puzzle: Puzzle, layout: Layout, around: tuple[str, str], limit: int
    ) -> tuple[Placement, int]:
        """Returns the facts among as many units of filler as fit, at least one, and the sample's tokens."""
        filler = self._filler
        fact_tokens = sum(filler.cost(fact.text) for fact in puzzle.facts) + self._generate
        skipped = filler.tokens(layout.start)
        n = max(1, filler.within(skipped + limit - fact_tokens) - layout.start)
        while True:
            placed = layout.among(puzzle.facts, filler, n)
            units = filler.tokens(layout.start + n) - skipped
            tokens = (
                fact_tokens + units + filler.ends(around[0], placed.first, placed.last, around[1])
            )
            if tokens <= limit or n == 1:
                return placed, tokens
            n -= 1
