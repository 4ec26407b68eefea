"""Decides from seed and step which samples a step rolls out, so that a resumed run continues in order."""

from collections.abc import Iterator

import numpy as np
from torch.utils.data import Sampler

PASS, FURTHER = 0, 1
"""Independent streams of random numbers."""


class DataOrder:
    """An endless order of indices: shuffled passes over the data, one after the other."""

    def __init__(self, size: int, per_step: int, seed: int) -> None:
        """Makes the order.

        Args:
            size: size of the data.
            per_step: indices per step, over all processes.
            seed: non-negative.
        """
        self.size = size
        self.per_step = per_step
        self._seed = seed

    def batch(self, step: int) -> list[int]:
        """Returns the indices of a step; steps are counted from 0."""
        first = step * self.per_step
        batch: list[int] = []
        while len(batch) < self.per_step:
            passes, offset = divmod(first + len(batch), self.size)
            room = self.per_step - len(batch)
            batch += self._shuffle(PASS, passes)[offset : offset + room].tolist()
        return batch

    def part(self, step: int, process: int, processes: int) -> list[int]:
        """Returns the indices of a step that one of several processes rolls out; steps are counted from 0."""
        share = self.per_step // processes
        return self.batch(step)[process * share :][:share]

    def draw_further(self, step: int) -> list[int]:
        """Returns all indices, in the order in which a step uses them to replace dropped groups.

        Indices outside the step's batch come first.
        """
        batch = set(self.batch(step))
        shuffled = self._shuffle(FURTHER, step).tolist()
        return sorted(shuffled, key=batch.__contains__)

    def _shuffle(self, stream: int, number: int) -> np.ndarray:
        return np.random.default_rng((self._seed, stream, number)).permutation(self.size)


class StepSampler(Sampler[int]):
    """The indices of all steps, each step's repeated as often as a loader needs them."""

    def __init__(self, order: DataOrder, steps: int, repeats: int) -> None:
        """Makes the sampler.

        Args:
            order: order of the data.
            steps: steps of the whole training.
            repeats: batches that a step draws from its loader: one per micro-batch.
        """
        self._order = order
        self._steps = steps
        self._repeats = repeats

    def __iter__(self) -> Iterator[int]:
        for step in range(self._steps):
            batch = self._order.batch(step)
            for _ in range(self._repeats):
                yield from batch

    def __len__(self) -> int:
        return self._steps * self._repeats * self._order.per_step
