"""Reads a benchmark's records and runs, and traces every required reference."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from memagent.errors import ConfigError, StoreCorrupt, StoreError
from memagent.runstore import RunStore
from memagent_bench.diagnose.traces import Fate, Trace, traces
from memagent_bench.folder import RUNS
from memagent_bench.record import Record
from memagent_bench.records import read_records
from memagent_bench.sessions.record import SESSIONS
from memagent_bench.systems.base import Status

CONFIDENCE = 0.95

Cell: TypeAlias = tuple[str, str, str, int]
"""System, suite, task, length."""


@dataclass(frozen=True)
class Hazard:
    """How often a memory loses what it holds, per chunk or per competing note."""

    losses: int
    steps: int
    """Chunks read, or competing notes in them, while the memory held the required text."""

    @property
    def rate(self) -> float | None:
        """Losses / steps; None without steps."""
        return self.losses / self.steps if self.steps else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Two-sided 95% bounds: Clopper and Pearson's exact ones (Biometrika 26, 1934), as if steps were independent.

        None without steps, or with more losses than steps (notes: something was lost in chunks without any).
        """
        if not self.steps or self.losses > self.steps:
            return None
        # scipy has no types, and is slow to load.
        stats: Any = import_module("scipy.stats")
        test: Any = stats.binomtest(self.losses, self.steps)
        bounds: Any = test.proportion_ci(CONFIDENCE, method="exact")
        return float(bounds.low), float(bounds.high)


@dataclass
class Diagnosis:
    """The fate of every required reference of the runs in a folder."""

    folder: Path
    traces: list[Trace] = field(default_factory=list[Trace])
    """Traces of all answered samples of systems with stored runs, right or wrong."""
    unanswered: int = 0
    """Samples without an answer; their records say why."""
    without_run: int = 0
    """Records of systems without stored runs."""
    unread: dict[str, str] = field(default_factory=dict[str, str])
    """Ids of runs that couldn't be traced -> reason."""

    @property
    def misses(self) -> list[Trace]:
        """Traces whose reference the answer lacks."""
        return [trace for trace in self.traces if not trace.got]

    @property
    def cells(self) -> dict[Cell, list[Trace]]:
        """Traces by system, suite, task and length, in this order."""
        cells: dict[Cell, list[Trace]] = {}
        for trace in self.traces:
            record = trace.record
            cell = (record.system, record.suite, record.task, record.length)
            cells.setdefault(cell, []).append(trace)
        return dict(sorted(cells.items()))


def diagnose(folder: Path) -> Diagnosis:
    """Traces every required reference of a benchmark through the memories of its runs. Blocks.

    Records of systems without stored runs, samples without an answer and runs that can't be traced are
    counted but left out.

    Args:
        folder: a benchmark's folder (`--out`).

    Raises:
        ConfigError: it has tool sessions.
        StoreError: it has no records, or they name runs but there is no run store.
        StoreCorrupt: a line isn't a record, or the run store is damaged.
    """
    folder = Path(folder)
    if (folder / SESSIONS).exists():
        raise ConfigError(
            f"{str(folder)!r} holds tool sessions, which have no memories to trace: name a folder of another suite, or "
            f"see `memagent-bench report` for sessions"
        )
    diagnosis = Diagnosis(folder)
    records: list[Record] = []
    for record in read_records(folder):
        if record.run_id is None:
            diagnosis.without_run += 1
        elif record.status is not Status.ANSWERED or record.answer is None:
            diagnosis.unanswered += 1
        else:
            records.append(record)
    if records:
        with open_runs(folder) as store:
            for record in records:
                _follow(record, store, diagnosis)
    return diagnosis


def hazard(traces: Iterable[Trace]) -> Hazard:
    """Computes the hazard of some traces. Includes right answers: omitting them would overstate it."""
    steps = losses = 0
    for trace in traces:
        steps += trace.risk
        losses += trace.fate is Fate.LOST
    return Hazard(losses, steps)


def hazard_per_note(traces: Iterable[Trace]) -> Hazard | None:
    """Computes the hazard per competing note; None if no task distinguishes them.

    A memory that must keep one of many similar notes loses it to the others; chunks without notes hardly matter, so
    a forecast for a text with more or fewer notes is based on notes.
    """
    counted = [trace for trace in traces if trace.met is not None]
    if not counted:
        return None
    return Hazard(hazard(counted).losses, sum(trace.met or 0 for trace in counted))


@contextmanager
def open_runs(folder: Path) -> Generator[RunStore]:
    """Opens the run store of a benchmark's folder, and closes it afterwards.

    Raises:
        StoreError: there is no run store, or it cannot be opened.
    """
    path = folder / RUNS
    if not path.is_file():  # opening would create it
        raise StoreError(
            f"no run store {str(path)!r}, which had the memories; copy it back, or run the benchmark again"
        )
    store = RunStore(path)
    try:
        yield store
    finally:
        store.close()


def _follow(record: Record, store: RunStore, diagnosis: Diagnosis) -> None:
    run_id = record.run_id or ""
    try:
        if store.find(run_id) is None:
            diagnosis.unread[run_id] = "not in the run store"
        elif not store.is_answered(run_id):
            diagnosis.unread[run_id] = "no answer in the run store, although its record has one"
        else:
            diagnosis.traces += traces(record, store.events(run_id))
    except StoreCorrupt as error:
        diagnosis.unread[run_id] = str(error)
