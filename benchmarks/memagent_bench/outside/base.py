"""What the suites have in common: a task that opens into an environment, with a reference solution if there is one."""

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
    """Handed in after them. Empty if the last call ends the task."""


class TaskEnvironment(Environment):
    """A task in progress. Methods block unless they say otherwise."""

    def __init__(self, task: str, tools: tuple[Tool, ...]) -> None:
        self.task, self.tools, self.steps = task, tools, 0
        self._score: float | None = None

    @property
    def over(self) -> bool:
        """Whether an answer was handed in. Doesn't block."""
        return self._score is not None

    def finish(self, answer: str) -> bool:
        """Hands in an answer; returns whether the first one was right.

        Raises:
            ToolError: it can't be judged.
        """
        if self._score is None:
            self._score = self._judge(answer)
        return self._score == 1

    def verdict(self) -> float:
        """The score of the first answer, from 0 to 1; 0 as long as there is none. Doesn't block."""
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
        """What the user says after an answer, of a task in several turns; None after the last. Doesn't block.

        From then on `tools` may be others.
        """
        return None

    @abstractmethod
    def solve(self) -> Solution:
        """The reference solution.

        Raises:
            ConfigError: the data have none.
        """

    def export(self, folder: Path, record: SessionRecord) -> None:
        """Writes what the suite's own scorer reads, if it has one."""

    def close(self) -> None:
        """Frees what the task holds."""


class Task(Protocol):
    """A task of a suite."""

    @property
    def id(self) -> str:
        """Unique in the data."""
        ...

    def open(self) -> TaskEnvironment:
        """Starts it anew. Blocks.

        Raises:
            BadData: its part of the data is damaged.
            NoSandbox: its code can't be isolated.
        """
        ...


class Suite(Protocol):
    """A benchmark that others made."""

    @property
    def name(self) -> str:
        """As in `--suite`."""
        ...

    @property
    def licence(self) -> str:
        """What its users must accept; empty if it asks for nothing."""
        ...

    @property
    def runs_code(self) -> bool:
        """Whether it needs a sandbox."""
        ...

    def files(self, data: Path) -> Sequence[Path]:
        """What the tasks are read from, in order; a repository's own files are left out. Blocks.

        Raises:
            BadData: there is none.
        """
        ...

    def tasks(self, data: Path) -> Iterator[Task]:
        """The tasks in the user's data, in the order of the files. Blocks.

        Raises:
            BadData: a file isn't of the suite's form, or there is none.
        """
        ...


def replay(solution: Solution) -> Expert:
    """A player that makes a solution's calls in order, and knows only where it is: its summary is that number.

    What it doesn't see in its context any more, it does again.
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
