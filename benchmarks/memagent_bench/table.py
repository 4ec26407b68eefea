"""Mean scores on a terminal: systems as rows, lengths as columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from memagent.texts import show_length
from memagent_bench.record import Record
from memagent_bench.suites import CONTROL, name_row


@dataclass(frozen=True)
class Mean:
    """A system's mean over tasks, with equal weights, at one length."""

    system: str
    """Its name; the controls, which have nothing to read, get a separate row."""
    length: int
    score: float
    """Samples without an answer count as 0."""
    n: int
    missing: int
    """Samples without an answer."""
    tasks: int
    """Number of tasks with records."""
    asked: int
    """Number of tasks requested, or with records."""

    def __str__(self) -> str:
        missing = f", {self.missing} missing" if self.missing else ""
        tasks = f", {self.tasks} of {self.asked} tasks" if self.tasks < self.asked else ""
        return f"{self.score:.3f} (n={self.n}{missing}{tasks})"


@dataclass(frozen=True)
class TaskMean:
    """A system's mean for one task and length."""

    system: str
    task: str
    length: int
    score: float
    """Samples without an answer count as 0."""
    n: int
    missing: int


def task_means(records: Sequence[Record]) -> list[TaskMean]:
    """Returns every system's mean for every task and length with records."""
    cells: dict[tuple[str, str, int], list[float | None]] = defaultdict(list)
    for record in records:
        cells[record.system, record.task, record.length].append(record.score)
    return [
        TaskMean(
            *cell,
            score=sum(score or 0.0 for score in scores) / len(scores),
            n=len(scores),
            missing=scores.count(None),
        )
        for cell, scores in sorted(cells.items())
    ]


def means(records: Sequence[Record], asked: Mapping[int, Collection[str]]) -> list[Mean]:
    """Returns every system's mean at every length with records.

    Args:
        records: records of one suite.
        asked: tasks requested, by length.
    """
    by_task: dict[tuple[str, int], dict[str, list[float | None]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for record in records:
        row = name_row(record.system, record.task), record.length
        by_task[row][record.task].append(record.score)
    return [
        Mean(
            system,
            length,
            score=sum(sum(s or 0.0 for s in scores) / len(scores) for scores in tasks.values())
            / len(tasks),
            n=sum(map(len, tasks.values())),
            missing=sum(scores.count(None) for scores in tasks.values()),
            tasks=len(tasks),
            asked=len(tasks.keys() | _keep_alike(asked.get(length, ()), tasks)),
        )
        for (system, length), tasks in sorted(by_task.items())
    ]


def _keep_alike(candidates: Collection[str], tasks: Collection[str]) -> set[str]:
    """Returns those of the requested tasks that are controls if `tasks` are, otherwise the others."""
    controls = any(task.endswith(CONTROL) for task in tasks)
    return {task for task in candidates if task.endswith(CONTROL) is controls}


def lines(found: Sequence[Mean]) -> list[str]:
    """Returns the table's lines, its header first; empty if there are no means."""
    lengths = sorted({mean.length for mean in found})
    systems = list(dict.fromkeys(mean.system for mean in found))
    cells = {(mean.system, mean.length): str(mean) for mean in found}
    rows = [["", *map(show_length, lengths)]]
    rows += [[name, *(cells.get((name, length), "-") for length in lengths)] for name in systems]
    if not found:
        return []
    return align(rows)


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Formats rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
