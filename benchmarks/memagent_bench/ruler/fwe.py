"""The most frequent words of a long coded text: RULER's second aggregation task."""

from __future__ import annotations

import math
import string
from bisect import bisect_right
from random import Random

import numpy as np
from numpy.typing import NDArray

from memagent.tasks import Sample
from memagent_bench.fitted import FittedTask, objects
from memagent_bench.options import DataOptions
from memagent_bench.ruler.frames import Fwe, load_frames

GENERATE = 50
"""Tokens that the published protocol allows for the reply."""
ANSWERS = 3
"""Number of coded words asked for: ranks 2 to 4. Rank 1 is dots."""
LETTERS = 6
"""Letters of a coded word."""
EDGES = 8
"""Tokens reserved for where the first and last coded words meet the prompt, which must not affect their number."""
LEAST = 53
"""Words at which rank 4 first occurs twice: from then on always more often than rank 5."""
STEPS = 32
"""If a sample is too long, RULER removes words in steps of the length divided by this."""


def zeta_counts(n: float) -> NDArray[np.int64]:
    """Returns each rank's count in about n coded words: floor(n k^-2 / zeta(2)), zeta(2) = pi^2 / 6, without zeros.

    Source: RULER (arXiv 2404.06654), frequent words, with its parameter alpha = 2.
    """
    scaled = n * 6 / math.pi**2
    ranks = np.arange(1, math.isqrt(int(scaled)) + 1, dtype=np.float64)
    return np.floor(scaled / ranks**2).astype(np.int64)


class FweTask(FittedTask):
    """Samples of the coded text at one length.

    Coded words take different numbers of tokens. As in RULER, all samples of a length have the number of words that
    fits for some words drawn beforehand; samples whose own words take more have fewer, in steps of 1/32 of the
    length. So samples with the same number of words have each rank at the same places, and few fill the length.

    Raises:
        ConfigError: the wording is unusable.
    """

    def __init__(self, length: int, options: DataOptions) -> None:
        super().__init__("fwe", "string_match_all", length, options)
        self._frames = load_frames(options.frames)
        self._frame = self._frames.table(Fwe)
        reference = self._rng("reference")
        self._reference = self._costs(self._draw(self._most_ranks, reference))
        self._dearest = int(self._reference.max())

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        return {**super().facts, "haystack": "coded words", "wording": self._frames.wording}

    def _make(self, index: int, limit: int) -> Sample:
        before, after, prefix = map(
            self._fill, (self._frame.before, self._frame.after, self._frame.answer_prefix)
        )
        end = after + prefix
        around = self._count(before) + self._count(end) + GENERATE + EDGES
        drawn = self._draw(self._most_ranks, self._rng("words", index))
        costs = self._costs(drawn)
        n = min(self._fit(limit - around, costs), self._fit(limit - around, self._reference))
        if n < LEAST:
            first, *others = zeta_counts(LEAST).tolist()
            least = around + first * int(costs[0]) + sum(others) * self._dearest
            raise self._too_short(index, self._length - limit + least)
        counts = zeta_counts(n)
        ranks = np.repeat(np.arange(len(counts)), counts)
        ranks = ranks[self._arrangement(len(ranks), index)]
        words: list[str] = objects(drawn)[ranks].tolist()
        between = self._frame.between
        ends = self._count(before + words[0] + between + words[-1] + end) + GENERATE
        ends -= int(costs[ranks[0]] + costs[ranks[-1]])
        return Sample(
            task=self.name,
            index=index,
            length=self._length,
            tokens=ends + int(counts @ costs[: len(counts)]),
            context=between.join(words),
            question=self._fill(self._frame.question),
            outputs=tuple(drawn[1 : ANSWERS + 1]),
            generate=GENERATE,
            before=before,
            after=after,
            answer_prefix=prefix,
        )

    @property
    def _most_ranks(self) -> int:
        """Upper bound of the different words in a sample of this length: a word takes at least one token."""
        return len(zeta_counts(2 * self._length + LEAST))

    def _fit(self, room: int, costs: NDArray[np.int64]) -> int:
        """Returns the largest number of words that fits and is allowed at this length; 0 if none does."""
        step = max(1, (self._length - GENERATE) // STEPS)

        def tokens(n: int) -> int:
            counts = zeta_counts(n)
            return int(counts @ costs[: len(counts)])

        sizes = range(LEAST, LEAST + max(0, 2 * room) + 1, step)
        fitting = bisect_right(sizes, room, key=tokens)
        return sizes[fitting - 1] if fitting else 0

    def _draw(self, n: int, rng: Random) -> list[str]:
        """Draws the words of the ranks; a larger number extends a smaller one."""
        words = {self._frame.rank_one: None}
        while len(words) < n:
            words[_draw_code(rng)] = None
        return list(words)

    def _costs(self, words: list[str]) -> NDArray[np.int64]:
        return np.fromiter(map(self._cost, words), dtype=np.int64, count=len(words))

    def _cost(self, word: str) -> int:
        return self._count(self._frame.between + word)

    def _fill(self, template: str) -> str:
        return template.format(count=ANSWERS)


def _draw_code(rng: Random) -> str:
    return "".join(rng.choices(string.ascii_lowercase, k=LETTERS))
