"""Shared by all suites: a task that opens into an environment, with a reference solution if there is one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from memagent.errors import ConfigError, ToolError
from memagent.tools import Environment, Tool
from memagent_bench.games import Expert
from memagent_bench.games.experts import Notes
from memagent_bench.games.transcript import Call
from memagent_bench.sessions.record import SessionRecord

OVER = "the task is over, an answer was handed in; this call did nothing"


class BadData(ConfigError):
    """A file of the user's data isn't what the suite expects; the message names the file and the remedy."""


class Solution(NamedTuple):
    """The calls that solve a task."""

    calls: tuple[Call, ...]
    answer: str
    """Submitted after the calls. Empty if the last call ends the task."""


class TaskEnvironment(Environment):
    """A task in progress. Methods block unless they say otherwise."""

    def __init__(self, task: str, tools: tuple[Tool, ...]) -> None:
        self.task, self.tools, self.steps = task, tools, 0
        self._score: float | None = None

    @property
    def over(self) -> bool:
        """Whether an answer was submitted. Doesn't block."""
        return self._score is not None

    def finish(self, answer: str) -> bool:
        """Submits an answer; returns whether the first one was right.

        Raises:
            ToolError: it can't be judged.
        """
        if self._score is None:
            self._score = self._judge(answer)
        return self._score == 1

    def verdict(self) -> float:
        """Returns the score of the first answer, from 0 to 1; 0 if there is none yet. Doesn't block."""
        return self._score or 0.0

    def take_step(self) -> None:
        """Counts a call.

        Raises:
            ToolError: the task is over.
        """
        if self.over:
            raise ToolError(OVER)
        self.steps += 1

    @abstractmethod
    def _judge(self, answer: str) -> float: ...

    def follow(self) -> str | None:
        """Returns the user's next message in a multi-turn task; None after the last turn. Doesn't block.

        From then on `tools` may differ.
        """
        return None

    @abstractmethod
    def solve(self) -> Solution:
        """Returns the reference solution.

        Raises:
            ConfigError: the data have none.
        """

    def export(self, folder: Path, record: SessionRecord) -> None:
        """Writes the files for the suite's own scorer, if it has one."""

    def close(self) -> None:
        """Frees the task's resources."""


class Task(Protocol):
    """A task of a suite."""

    @property
    def id(self) -> str:
        """Unique in the data."""
        ...

    def open(self) -> TaskEnvironment:
        """Starts it from the beginning. Blocks.

        Raises:
            BadData: its part of the data is damaged.
            NoSandbox: its code can't be isolated.
        """
        ...


class Suite(Protocol):
    """A third-party benchmark."""

    @property
    def name(self) -> str:
        """Name, as in `--suite`."""
        ...

    @property
    def licence(self) -> str:
        """Licence that its users must accept; empty if none."""
        ...

    @property
    def runs_code(self) -> bool:
        """Whether it needs a sandbox."""
        ...

    def files(self, data: Path) -> Sequence[Path]:
        """Returns the files that the tasks are read from, in order, without a repository's own files. Blocks.

        Raises:
            BadData: there is none.
        """
        ...

    def tasks(self, data: Path) -> Iterator[Task]:
        """Yields the tasks in the user's data, in the order of the files. Blocks.

        Raises:
            BadData: a file doesn't have the suite's form, or there is no file.
        """
        ...


def replay(solution: Solution) -> Expert:
    """Returns a player that makes a solution's calls in order, and only knows its position: its summary is that number.

    It repeats calls that it no longer sees in its context.
    """

    class Place(Notes):
        done: int = 0

        @classmethod
        def start(cls, task: str) -> Place:
            return cls()

        def next(self) -> Call | str:
            return (
                solution.answer if self.done == len(solution.calls) else solution.calls[self.done]
            )

        def fold(self, result: str) -> Place:
            return self.but(done=self.done + 1)

    return Expert(Place)
