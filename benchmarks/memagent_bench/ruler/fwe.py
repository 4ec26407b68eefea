"""The most frequent words of a long coded text: RULER's second task of aggregation."""

from __future__ import annotations

import math
import string
from collections import Counter
from random import Random

import numpy as np
from numpy.typing import NDArray

from memagent.tasks import Sample
from memagent_bench.fitted import FittedTask, objects
from memagent_bench.options import DataOptions
from memagent_bench.ruler.frames import load_frames

GENERATE = 50
"""Tokens that the published protocol gives the reply."""
ANSWERS = 3
"""Coded words that are asked for: those of rank 2 to 4. Rank 1 is dots."""
LETTERS = 6
"""Of a coded word."""
EDGES = 8
"""Tokens set aside for how the first and the last coded word meet the prompt: it must not decide how many there are."""
LEAST = 53
"""Words with which rank 4 comes twice, and so for the first time always more often than rank 5."""
TRIED = 256
"""Coded words by which the most usual number of tokens is found."""


def zeta_counts(n: float) -> NDArray[np.int64]:
    """How often each rank comes in about n coded words: floor(n k^-2 / zeta(2)), zeta(2) = pi^2 / 6, where not 0.

    Source: RULER (arXiv 2404.06654), frequent words, with its parameter alpha = 2.
    """
    scaled = n * 6 / math.pi**2
    ranks = np.arange(1, math.isqrt(int(scaled)) + 1, dtype=np.float64)
    return np.floor(scaled / ranks**2).astype(np.int64)


class FweTask(FittedTask):
    """Samples of the coded text at one length.

    All coded words take the most usual number of tokens of six random letters: so samples of a length differ
    in their words, but neither in how often each rank comes nor in their tokens.

    Raises:
        ConfigError: the wording is unusable.
    """

    def __init__(self, length: int, options: DataOptions) -> None:
        super().__init__("fwe", "string_match_all", length, options)
        self._frames = load_frames(options.frames)
        self._frame = self._frames.fwe
        rng = Random(f"{options.seed}:fwe:usual")
        costs = Counter(self._cost(_coded(rng)) for _ in range(TRIED))
        self._usual = costs.most_common(1)[0][0]

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        return {
            **super().facts,
            "haystack": f"coded words of {self._usual} tokens",
            "wording": self._frames.wording,
        }

    def _made(self, index: int, limit: int) -> Sample:
        before, after = self._fill(self._frame.before), self._fill(self._frame.after)
        around = self._count(before) + self._count(after) + GENERATE
        counts = self._fit(limit - around - EDGES)
        if len(counts) <= ANSWERS or counts[ANSWERS] < 2:
            least = around + EDGES + self._tokens(zeta_counts(LEAST))
            raise self._too_short(index, self._length - limit + least)
        drawn = [self._frame.rank_one, *self._draw(len(counts) - 1, index)]
        ranks = np.repeat(np.arange(len(counts)), counts)
        ranks = ranks[self._arrangement(len(ranks), index)]
        words: list[str] = objects(drawn)[ranks].tolist()
        between = self._frame.between
        ends = self._count(before + words[0] + between + words[-1] + after) + GENERATE
        ends -= self._cost(words[0]) + self._cost(words[-1])
        return Sample(
            task=self.name,
            index=index,
            length=self._length,
            tokens=ends + self._tokens(counts),
            context=between.join(words),
            question=self._fill(self._frame.question),
            outputs=tuple(drawn[1 : ANSWERS + 1]),
            generate=GENERATE,
            before=before,
            after=after,
        )

    def _fit(self, room: int) -> NDArray[np.int64]:
        """How often each rank comes, where as many words are taken as fit."""
        low, high = 0, max(0, room)
        while low < high:
            middle = (low + high + 1) // 2
            fits = self._tokens(zeta_counts(middle)) <= room
            low, high = (middle, high) if fits else (low, middle - 1)
        return zeta_counts(low)

    def _tokens(self, counts: NDArray[np.int64]) -> int:
        first = int(counts[:1].sum())
        return first * self._cost(self._frame.rank_one) + int(counts[1:].sum()) * self._usual

    def _draw(self, n: int, index: int) -> list[str]:
        """Coded words; a longer sample of the same seed adds some to those of a shorter one, where nested."""
        rng = self._rng("words", index)
        words: dict[str, None] = {}
        while len(words) < n:
            word = _coded(rng)
            if self._cost(word) == self._usual:
                words[word] = None
        return list(words)

    def _cost(self, word: str) -> int:
        return self._count(self._frame.between + word)

    def _fill(self, template: str) -> str:
        return template.format(count=ANSWERS)


def _coded(rng: Random) -> str:
    return "".join(rng.choices(string.ascii_lowercase, k=LETTERS))
