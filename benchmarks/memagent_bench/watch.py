"""Shows the progress of a benchmark: finished work, cost, and time left."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import IO, Any

from memagent import terminal
from memagent.terminal import amount, duration, say, shorten
from memagent.texts import plural, show_length
from memagent_bench.grid import Cell, Job
from memagent_bench.meter import Account, Meter
from memagent_bench.record import Record
from memagent_bench.systems.base import Status

NEARLY = 0.98
"""Maximum progress of an unfinished job: predictions are rough."""
DETAIL = 120
"""Maximum characters shown of the reason for a missing answer."""


@dataclass
class Pace:
    """Pace of one system: systems without model calls finish at once, and don't predict those with calls."""

    left: float = 0.0
    """Tokens of the jobs that haven't ended."""
    done: float = 0.0
    """Tokens of the jobs that have ended."""
    seconds: float = 0.0
    """Total seconds of the ended jobs."""


class Board:
    """Adds up the progress of a session.

    Args:
        weights: tokens that each job will take, roughly.
        before: number of existing records.
        meter: counts the usage of calls.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        weights: Mapping[Job, float],
        before: int,
        meter: Meter,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.weights = weights
        self.before, self.meter = before, meter
        self.ended = self.answered = self.failed = self.stopped = 0
        self.latest: Record | None = None
        self._open: dict[Job, tuple[Account, float]] = {}
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        for job, tokens in weights.items():
            self._paces[job.system].left += tokens
        self._clock = clock
        self._begun = self._busy_since = clock()
        self._busy = 0.0

    @property
    def total(self) -> int:
        """Number of records at the end, including those of earlier sessions."""
        return self.before + len(self.weights)

    @property
    def done(self) -> int:
        """Number of records so far."""
        return self.before + self.answered + self.failed + self.stopped

    def begin(self, job: Job, account: Account) -> None:
        """Records that a job has begun."""
        now = self._clock()
        if not self._open:
            self._busy_since = now
        self._open[job] = (account, now)

    def end(self, job: Job, record: Record | None) -> None:
        """Records that a job has ended; without a record, its sample couldn't be made."""
        now, tokens = self._clock(), self.weights.get(job, 0.0)
        pace = self._paces[job.system]
        pace.left -= tokens
        if (begun := self._open.pop(job, None)) is not None:
            pace.done += tokens
            pace.seconds += now - begun[1]
            if not self._open:
                self._busy += now - self._busy_since
        self.ended += 1
        if record is not None:
            self.latest = record
            self.answered += record.status is Status.ANSWERED
            self.failed += record.status is Status.FAILED
            self.stopped += record.status is Status.STOPPED

    @property
    def fraction(self) -> float:
        """Share of this session's work that is done, 0 to 1, by tokens."""
        if self.ended == len(self.weights):
            return 1.0
        total = sum(self.weights.values())
        open_tokens = sum(pace.left for pace in self._count_open().values())
        return min(1 - open_tokens / total, 0.999) if total else 0.0

    @property
    def elapsed(self) -> float:
        """Seconds of this session."""
        return self._clock() - self._begun

    @property
    def speed(self) -> float:
        """Prompt plus completion tokens per second."""
        return self.meter.total.tokens / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until everything is done, each system at its pace in this session; None if unknown.

        The seconds of concurrent jobs add up, so the remaining seconds are divided by the average number of jobs that
        ran at once.
        """
        if self.ended == len(self.weights):
            return 0.0
        paces = self._count_open().values()
        if self.elapsed < 1 or any(pace.left >= 1 and not pace.done for pace in paces):
            return None
        busy = self._busy + (self._clock() - self._busy_since if self._open else 0.0)
        spent = sum(pace.seconds for pace in paces)
        ahead = sum(pace.left * pace.seconds / pace.done for pace in paces if pace.done)
        return ahead * busy / spent if spent else 0.0

    def _count_open(self) -> dict[str, Pace]:
        """Returns the paces, including what running jobs have done."""
        paces = {system: replace(pace) for system, pace in self._paces.items()}
        now = self._clock()
        for job, (account, begun) in list(self._open.items()):  # drawn by another thread
            if tokens := min(account.tokens, NEARLY * self.weights.get(job, 0.0)):
                pace = paces[job.system]
                pace.left, pace.done = pace.left - tokens, pace.done + tokens
                pace.seconds += now - begun
        return paces

    def facts(self) -> list[str]:
        """Returns the counts for one line."""
        usage = self.meter.total.usage
        facts = [
            f"{self.done:,} of {plural(self.total, 'record')}",
            plural(usage.calls, "call"),
            f"{amount(self.speed)} tokens/s",
            duration(self.elapsed),
        ]
        if self.failed or self.stopped:
            facts.append(f"{self.failed + self.stopped:,} without an answer")
        return facts


def line_of(record: Record) -> str:
    """Formats a record on one line: the sample, and its outcome."""
    where = (
        f"{show_length(record.length):>6} {record.task:<19} {record.index:>4}  {record.system:<17}"
    )
    if record.score is None:
        return f"{where} {record.status.value.upper()}: {shorten(record.detail, DETAIL)}"
    spent = f"{plural(record.usage.calls, 'call'):>10}  {duration(record.seconds):>10}"
    return f"{where} {record.score:.2f} {spent}"


class SilentWatcher:
    """Receives a runner's progress; counts, and prints only what can't be measured."""

    screen: AbstractContextManager[Any] = nullcontext()
    """Entered during the work: it takes and releases the terminal, if there is one."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._said: set[Cell | tuple[str, str]] = set()

    def begin(self, job: Job, account: Account) -> None:
        """Called when a sample is made and a system starts on it."""
        self.board.begin(job, account)

    def end(self, job: Job, record: Record) -> None:
        """Called when it has its record."""
        self.board.end(job, record)

    def drop(self, job: Job, why: str) -> None:
        """Called when its sample can't be made. Reports at once, not after hours, and once per cell or reason."""
        self.board.end(job, None)
        keys: set[Cell | tuple[str, str]] = {job.cell, (job.task, why)}
        if not keys & self._said:
            where = f"sample {job.index} of {job.task} at {show_length(job.length)} cannot be made:"
            say(where, why, style="yellow")
        self._said |= keys


class PlainWatcher(SilentWatcher):
    """Prints a line for each record, without control codes."""

    def end(self, job: Job, record: Record) -> None:
        """Counts and prints."""
        super().end(job, record)
        board = self.board
        ahead = (
            "" if board.left is None or board.fraction == 1 else f"  {duration(board.left)} left"
        )
        width = len(f"{board.total:,}")
        # Flushed: somebody may be watching a pipe or a log.
        print(f"{board.done:>{width},}/{board.total:,} {line_of(record)}{ahead}", flush=True)


class LiveWatcher(SilentWatcher):
    """A title, a bar, the counts and the latest record on a terminal; removed at the end."""

    def __init__(self, board: Board, title: str, stream: IO[str]) -> None:
        super().__init__(board)
        self.screen = terminal.board(stream, title, self._state)

    def _state(self) -> tuple[float, float | None, list[str]]:
        board = self.board
        latest = "" if board.latest is None else line_of(board.latest)
        return board.fraction, board.left, [" · ".join(board.facts()), latest]
