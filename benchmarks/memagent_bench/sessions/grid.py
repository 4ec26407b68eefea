"""What is to be played, and what of it is left."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from memagent.tools import Environment
from memagent_bench.games import Expert, expert, make
from memagent_bench.sessions.arms import Arm
from memagent_bench.sessions.record import SessionRecord

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


class Dealt(NamedTuple):
    """What is played, and what follows."""

    environment: Environment
    follow: Callable[[], str | None] = lambda: None
    """What the user says after an answer; None if that was the last one."""
    keep: Callable[[SessionRecord], None] = lambda _: None
    """Called with the record. Blocks."""
    close: Callable[[], None] = lambda: None
    """Frees what the environment holds. Blocks."""


class Plan(Protocol):
    """What `SessionBench` plays. All methods block."""

    @property
    def name(self) -> str | None:
        """The suite's, None for games."""
        ...

    def check(self) -> None:
        """Raises ConfigError for what can't be played."""
        ...

    def jobs(self, done: Collection[object] = ()) -> Iterator[Job]:
        """What is not done yet."""
        ...

    def deal(self, job: Job) -> Dealt:
        """Starts a job; ConfigError if it can't be started."""
        ...

    def expert(self, job: Job) -> Expert:
        """A perfect player; ConfigError if there is none."""
        ...


@dataclass(frozen=True)
class Grid:
    """Every game of every difficulty and seed, each way."""

    games: Sequence[str]
    difficulties: Sequence[int]
    seeds: Sequence[int]
    arms: Sequence[Arm]
    name = None

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

    def deal(self, job: Job) -> Dealt:
        """The game of a job."""
        return Dealt(make(job.game, seed=job.seed, difficulty=job.difficulty))

    def expert(self, job: Job) -> Expert:
        """The game's expert."""
        return expert(job.game)
