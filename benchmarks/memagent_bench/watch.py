"""Shows how a benchmark goes on: what is done, what it takes, and how long it will last."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from typing import IO, Self

from memagent import terminal
from memagent.cli.options import Display
from memagent.terminal import amount, duration, on_terminal, plural, say, shorten
from memagent_bench.grid import Job
from memagent_bench.lengths import show_length
from memagent_bench.meter import Account, Meter
from memagent_bench.record import Record
from memagent_bench.systems.base import Status

NEARLY = 0.98
"""How far a job counts as done at most before it is: predictions are rough."""
DETAIL = 120
"""Characters shown of why there is no answer."""


class Board:
    """Adds up what is known of a session.

    Args:
        weights: tokens that each job will take, roughly.
        before: records that were there already.
        meter: counts what calls take.
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
        self._all = sum(weights.values())
        self._through = 0.0
        self._open: dict[Job, Account] = {}
        self._clock = clock
        self._begun = clock()

    @property
    def total(self) -> int:
        """Records that there will be, those of earlier sessions among them."""
        return self.before + len(self.weights)

    @property
    def done(self) -> int:
        """Records that there are."""
        return self.before + self.answered + self.failed + self.stopped

    def begin(self, job: Job, account: Account) -> None:
        """Takes note of a beginning."""
        self._open[job] = account

    def end(self, job: Job, record: Record | None) -> None:
        """Takes note of an end; without a record the sample could not be made."""
        self._open.pop(job, None)
        self._through += self.weights.get(job, 0.0)
        self.ended += 1
        if record is not None:
            self.latest = record
            self.answered += record.status is Status.ANSWERED
            self.failed += record.status is Status.FAILED
            self.stopped += record.status is Status.STOPPED

    @property
    def fraction(self) -> float:
        """How much of this session's work is done, 0 to 1, by tokens."""
        if self.ended == len(self.weights):
            return 1.0
        under_way = sum(
            min(account.tokens, NEARLY * self.weights.get(job, 0.0))
            for job, account in list(self._open.items())  # drawn by another thread
        )
        return min((self._through + under_way) / self._all, 0.999) if self._all else 0.0

    @property
    def elapsed(self) -> float:
        """Seconds of this session."""
        return self._clock() - self._begun

    @property
    def speed(self) -> float:
        """Prompt and completion tokens a second."""
        return self.meter.total.tokens / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until everything is done, at this session's pace; None where nobody can tell yet."""
        fraction = self.fraction
        if fraction < 0.001 or self.elapsed < 1:
            return None
        return self.elapsed * (1 - fraction) / fraction

    def facts(self) -> list[str]:
        """Counts for one line."""
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
    """A record on one line: what it was, and what came of it."""
    where = (
        f"{show_length(record.length):>6} {record.task:<19} {record.index:>4}  {record.system:<17}"
    )
    if record.score is None:
        return f"{where} {record.status.value.upper()}: {shorten(record.detail, DETAIL)}"
    spent = f"{plural(record.usage.calls, 'call'):>10}  {duration(record.seconds):>10}"
    return f"{where} {record.score:.2f} {spent}"


class SilentWatcher:
    """Is told what a runner does; counts, and says no more than what cannot be measured."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self._said: set[tuple[str, str]] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to put back."""

    def began(self, job: Job, account: Account) -> None:
        """A sample is there, and a system goes to work on it."""
        self.board.begin(job, account)

    def ended(self, job: Job, record: Record) -> None:
        """It has its record."""
        self.board.end(job, record)

    def dropped(self, job: Job, why: str) -> None:
        """Its sample cannot be made. Said at once, not after hours, and once for a task."""
        self.board.end(job, None)
        if (job.task, why) not in self._said:
            self._said.add((job.task, why))
            where = f"{job.task} at {show_length(job.length)} cannot be made:"
            say(where, why, style="yellow")


class PlainWatcher(SilentWatcher):
    """Prints a line for each record, without control codes."""

    def ended(self, job: Job, record: Record) -> None:
        """Counts, and prints."""
        super().ended(job, record)
        board = self.board
        ahead = (
            "" if board.left is None or board.fraction == 1 else f"  {duration(board.left)} left"
        )
        width = len(f"{board.total:,}")
        # Flushed: somebody may be watching a pipe or a log.
        print(f"{board.done:>{width},}/{board.total:,} {line_of(record)}{ahead}", flush=True)


class LiveWatcher(SilentWatcher):
    """A title, a bar, the counts and the latest record; they are gone at the end.

    Args:
        board: counts along.
        title: what is measured.
        stream: a terminal.
    """

    def __init__(self, board: Board, title: str, stream: IO[str]) -> None:
        super().__init__(board)
        self._screen = terminal.Board(stream, title, board, self._latest)

    def __enter__(self) -> Self:
        self._screen.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Gives the terminal back."""
        self._screen.__exit__(*error)

    def _latest(self) -> str:
        return "" if self.board.latest is None else line_of(self.board.latest)


def watcher(display: Display, board: Board, title: str) -> SilentWatcher:
    """Shows a session as `display` says; where standard output carries data, a terminal's standard error is used."""
    if display is Display.PLAIN:
        return PlainWatcher(board)
    stream = sys.stdout if display is Display.FULL else sys.stderr
    return LiveWatcher(board, title, stream) if on_terminal(stream) else SilentWatcher(board)
