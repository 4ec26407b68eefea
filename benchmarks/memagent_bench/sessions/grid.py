"""What is to be played, and what of it is left."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from memagent_bench.games import make
from memagent_bench.sessions.arms import Arm

PATIENCE, SPARE = 2, 20
"""A session may make twice the steps that the expert needs, and some more: who forgets and asks again never ends."""


class Job(NamedTuple):
    """One game, one way. Equal to the key of its record."""

    game: str
    difficulty: int
    seed: int
    arm: Arm

    @property
    def max_steps(self) -> int:
        """Most steps of it."""
        return PATIENCE * self.difficulty + SPARE


@dataclass(frozen=True)
class Grid:
    """Every game of every difficulty and seed, each way."""

    games: Sequence[str]
    difficulties: Sequence[int]
    seeds: Sequence[int]
    arms: Sequence[Arm]

    def check(self) -> None:
        """Deals one game of each kind.

        Raises:
            ConfigError: one cannot be dealt so.
        """
        for game in self.games:
            make(game, seed=0, difficulty=min(self.difficulties))
        make(self.games[0], seed=0, difficulty=max(self.difficulties))

    def jobs(self, done: Collection[object] = ()) -> Iterator[Job]:
        """What is not done yet, short sessions first, all ways of one game together.

        Args:
            done: keys of records.
        """
        for difficulty in sorted(self.difficulties):
            for game in self.games:
                for seed in self.seeds:
                    for arm in self.arms:
                        job = Job(game, difficulty, seed, arm)
                        if tuple(job) not in done:
                            yield job
