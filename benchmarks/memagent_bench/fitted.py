"""Tasks that size samples by adding up the tokens of their parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memagent.errors import ConfigError
from memagent.tasks import Sample
from memagent.texts import show_length
from memagent_bench.options import DataOptions

STEP = 64
"""Minimum lengths are reported in steps of this many tokens."""
Order = NDArray[np.int64]
"""Indexes."""


class FittedTask(ABC):
    """Shared by such tasks: how sums are checked against the whole, and how randomness is seeded.

    If the tokens of the parts add up to those of the whole, only the first sample is tokenised as a whole.
    With other tokenizers every sample is, and is made smaller until it fits.
    """

    def __init__(self, name: str, scorer: str, length: int, options: DataOptions) -> None:
        self.name, self.scorer = name, scorer
        self._length, self._options = length, options
        self._count = options.counter.count
        self._published: Order | None = None

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `Task`."""
        return {
            "positions": self._options.positions,
            "nested": self._options.nested,
            "length_tokenizer": self._options.counter.name,
        }

    def sample(self, index: int) -> Sample:
        """See `Task`. Time and memory are linear in the length."""
        target = self._length * self._scale
        while True:
            sample = self._make(index, int(target))
            if self._scale == 1.0:
                return sample
            tokens = self._count_whole(sample)
            if tokens <= self._length:
                return sample.model_copy(update={"tokens": tokens})
            target -= tokens - self._length

    @abstractmethod
    def _make(self, index: int, limit: int) -> Sample:
        """Returns a sample of at most `limit` tokens, by adding up its parts."""

    @cached_property
    def _scale(self) -> float:
        """Summed tokens per token of the whole. Measured on sample 0, whichever is requested first."""
        sample = self._make(0, self._length)
        return sample.tokens / self._count_whole(sample)

    def _count_whole(self, sample: Sample) -> int:
        return self._count(sample.prompt) + sample.generate

    def _rng(self, what: str, index: int | None = None) -> Random:
        """Returns a generator that is the same for the same options, length (unless nested), and index (if given)."""
        length = "" if self._options.nested else f":{self._length}"
        sample = "" if index is None else f":{index}"
        return Random(f"{self._options.seed}:{self.name}:{what}{sample}{length}")

    def _places_rng(self, what: str, index: int) -> Random:
        """Returns the generator that decides places: RULER's is the same in every sample of a length."""
        return self._rng(what, None if self._options.positions == "published" else index)

    def _arrangement(self, n: int, index: int) -> Order:
        """Returns 0..n-1 in the order in which n things stand; drawn once if it is the same in each sample."""
        if self._options.positions != "published":
            return shuffle_range(n, self._places_rng("order", index))
        if self._published is None or len(self._published) != n:
            self._published = shuffle_range(n, self._places_rng("order", index))
        return self._published

    def _too_short(self, index: int, needed: int) -> ConfigError:
        # Samples differ in the words drawn, and more so in the question asked.
        least = -(-needed * 9 // 8 // STEP) * STEP
        return ConfigError(
            f"{show_length(self._length)} tokens are too few for {self.name} (sample {index} needs {needed}): "
            f"give a length of at least {least}"
        )


def shuffle_range(n: int, rng: Random) -> Order:
    """Returns 0..n-1 in random order: sorts by random 32-bit keys, ties in ascending order.

    The bits are those of Python's generator, which no later version will change. Sorted by 16 bits
    at a time, which numpy does in linear time: 0.04 us per number; `Random.shuffle` takes 0.5 us.
    """
    low, high = np.frombuffer(rng.randbytes(4 * n), dtype="<u2").reshape(2, n)
    order = np.argsort(low, kind="stable")
    return order[np.argsort(high[order], kind="stable")]


def objects(texts: Sequence[str]) -> NDArray[Any]:
    """Returns texts as an array, for picking many by index at once."""
    array = np.empty(len(texts), dtype=object)
    array[:] = list(texts)
    return array
