"""The sessions to play, and those left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from memagent.errors import ConfigError
from memagent.tools import Environment
from memagent_bench.games import Expert, expert, make
from memagent_bench.sessions.arms import Arm
from memagent_bench.sessions.record import SessionRecord
from memagent_bench.sessions.wire.loops import LOOPS, load_loop
from memagent_bench.shift.shift import SHIFTS

PATIENCE, SPARE = 2, 20
"""A session may take twice the expert's steps and some more: one that forgets and asks again would never end."""


class Job(NamedTuple):
    """One game played one way. Equal to the key of its record."""

    game: str
    difficulty: int
    seed: int
    arm: Arm

    @property
    def max_steps(self) -> int:
        """Maximum steps of the session."""
        return PATIENCE * self.difficulty + SPARE


class Dealt(NamedTuple):
    """A dealt environment, with its callbacks."""

    environment: Environment
    follow: Callable[[], str | None] = lambda: None
    """Returns what the user says after an answer; None if that was the last one."""
    keep: Callable[[SessionRecord], None] = lambda _: None
    """Called with the record. Blocks."""
    close: Callable[[], None] = lambda: None
    """Frees the environment's resources. Blocks."""


class Plan(Protocol):
    """The sessions that `SessionBench` plays. All methods block."""

    @property
    def name(self) -> str | None:
        """Name of the suite; None for games."""
        ...

    @property
    def files(self) -> Sequence[Path]:
        """Files of the suite's data; empty for games."""
        ...

    @property
    def arms(self) -> Sequence[Arm]:
        """The ways to play."""
        ...

    def check(self) -> None:
        """Raises ConfigError if something can't be played."""
        ...

    def jobs(self, done: Collection[object] = ()) -> Iterator[Job]:
        """Yields the jobs that are not done."""
        ...

    def deal(self, job: Job) -> Dealt:
        """Starts a job; raises ConfigError if it can't be started."""
        ...

    def expert(self, job: Job) -> Expert:
        """Returns a perfect player; raises ConfigError if there is none."""
        ...


@dataclass(frozen=True)
class Grid:
    """Every game of every difficulty and seed, played in each way."""

    games: Sequence[str]
    difficulties: Sequence[int]
    seeds: Sequence[int]
    arms: Sequence[Arm]
    name, files = None, ()

    def check(self) -> None:
        """Deals one game of each kind, and the first of them at the highest difficulty; loads the loops of the arms.

        Raises:
            ConfigError: one can't be dealt with these settings, or a system doesn't play the games.
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

    def _deal(self, game: str, difficulty: int, seed: int = 0) -> Environment:
        return (SHIFTS.get(game) or partial(make, game))(seed=seed, difficulty=difficulty)

    def jobs(self, done: Collection[object] = ()) -> Iterator[Job]:
        """Yields the jobs that are not done, short sessions first, all ways of one game together.

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

    def deal(self, job: Job) -> Dealt:
        """Deals the game of a job."""
        return Dealt(self._deal(job.game, job.difficulty, job.seed))

    def expert(self, job: Job) -> Expert:
        """Returns the game's expert."""
        return expert(job.game)
