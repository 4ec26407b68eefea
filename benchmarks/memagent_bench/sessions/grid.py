"""What is to be played, and what of it is left."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from memagent.errors import ConfigError
from memagent_bench.games import make
from memagent_bench.sessions.arms import Arm
from memagent_bench.sessions.wire.loops import LOOPS, load_loop
from memagent_bench.shift.shift import SHIFTS

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
        """Deals one game of each kind, and loads what is to work on shifts.

        Raises:
            ConfigError: one cannot be dealt so, or a system doesn't play the games.
        """
        for arm in self.arms:
            at_server = arm.system in LOOPS
            if unfit := [game for game in self.games if (game in SHIFTS) is not at_server]:
                raise ConfigError(
                    f"the system {arm.system!r} doesn't play {', '.join(unfit)}: shifts (--games "
                    f"{','.join(SHIFTS)}) are for the systems {', '.join(LOOPS)}, games for the others"
                )
            if at_server:
                load_loop(arm.system)
        for game in self.games:
            self._deal(game, min(self.difficulties))
        self._deal(self.games[0], max(self.difficulties))

    def _deal(self, game: str, difficulty: int) -> None:
        if game in SHIFTS:
            SHIFTS[game](seed=0, difficulty=difficulty)
        else:
            make(game, seed=0, difficulty=difficulty)

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
