"""A grid of third-party tasks, for `memagent-bench sessions`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path

from memagent.errors import ConfigError
from memagent_bench.games import Expert
from memagent_bench.outside.base import BadData, Suite, Task, replay
from memagent_bench.outside.sandbox import Limits, Sandbox
from memagent_bench.sessions.arms import Arm
from memagent_bench.sessions.grid import Dealt, Job
from memagent_bench.sessions.wire.loops import LOOPS
from memagent_bench.suites import ALL, several_of


class TaskJob(Job):
    """A task under one arm. Its difficulty is its maximum number of steps."""

    __slots__ = ()

    @property
    def max_steps(self) -> int:
        """Maximum steps of the task."""
        return self.difficulty


@dataclass(frozen=True)
class TaskGrid:
    """Every task, once per seed, under each arm."""

    suite: Suite
    data: Path
    arms: Sequence[Arm]
    seeds: Sequence[int]
    steps: int
    """Maximum steps of a session."""
    first: int
    """Number of tasks used, from the first in the data."""
    out: Path
    """Folder for results in the form of the suite's scorer."""
    names: str = ALL
    """Comma-separated ids of tasks, or `all`."""

    @property
    def name(self) -> str:
        """Name in the folder's settings."""
        return self.suite.name

    @property
    def files(self) -> Sequence[Path]:
        """Files of the suite's data. Blocks."""
        return self.suite.files(self.data)

    @cached_property
    def tasks(self) -> dict[str, Task]:
        """The tasks by id. Blocks.

        Raises:
            BadData: a file isn't of the suite's form, or two tasks have the same id.
            ConfigError: there is no such task.
        """
        if not self.data.exists():
            raise BadData(
                f"there is no {str(self.data)!r}: give the folder that you fetched (--data)"
            )
        wants_all = self.names.strip() == ALL
        every = dict[str, Task]()
        for task in islice(self.suite.tasks(self.data), self.first if wants_all else None):
            if task.id in every:
                raise BadData(f"two tasks of the data have the id {task.id!r}; remove one of them")
            every[task.id] = task
        return every if wants_all else {n: every[n] for n in several_of(self.names, every, "task")}

    def check(self) -> None:
        """Reads the data, and builds a sandbox if the suite needs one. Blocks.

        Raises:
            ConfigError: the data are damaged, or there is no sandbox.
        """
        if not self.tasks:
            raise BadData(f"{str(self.data)!r} has no tasks of {self.suite.name}")
        if loops := [arm.system for arm in self.arms if arm.system in LOOPS]:
            raise ConfigError(
                f"the systems {', '.join(loops)} play shifts only: name others (--systems)"
            )
        if self.suite.runs_code:
            Sandbox("", Limits(), f"a task of {self.suite.name}").close()

    def jobs(self, done: Collection[object] = ()) -> Iterator[Job]:
        """Yields the jobs that are not done, all arms of one task together."""
        for name in self.tasks:
            for seed in self.seeds:
                for arm in self.arms:
                    job = TaskJob(name, self.steps, seed, arm)
                    if tuple(job) not in done:
                        yield job

    def deal(self, job: Job) -> Dealt:
        """Starts a job's task. Blocks."""
        environment = self.tasks[job.game].open()
        keep = partial(environment.export, self.out)
        return Dealt(environment, environment.follow, keep, environment.close)

    def expert(self, job: Job) -> Expert:
        """Returns a player that follows the reference solution. Blocks.

        Raises:
            ConfigError: the data have none.
        """
        environment = self.tasks[job.game].open()
        try:
            return replay(environment.solve())
        finally:
            environment.close()
