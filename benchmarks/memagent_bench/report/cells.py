"""Records sorted into cells: suite, system, task, length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memagent.terminal import clean
from memagent_bench.published import ONE_SHOT, RULER_TASKS
from memagent_bench.record import Record
from memagent_bench.suites import CONTROL, name_row
from memagent_bench.systems.registry import SYSTEMS


@dataclass(frozen=True)
class Suite:
    """The records of one suite. A *label* names a system, and its model if there are several."""

    name: str
    labels: tuple[str, ...]
    """Labels in the order in which they first came."""
    tasks: tuple[str, ...]
    """Tasks: RULER's in RULER's order, others in the order in which they first came."""
    lengths: tuple[int, ...]
    """Lengths, ascending."""
    cells: Mapping[tuple[str, str, int], tuple[Record, ...]]
    """Records by label, task and length; no cell is empty."""

    def tasks_of(self, label: str, length: int) -> tuple[str, ...]:
        """Returns the tasks for which the system has records at that length."""
        return tuple(task for task in self.tasks if (label, task, length) in self.cells)

    def lengths_of(self, label: str) -> tuple[int, ...]:
        """Returns the lengths at which the system has records."""
        return tuple(length for length in self.lengths if self.tasks_of(label, length))

    def shared_tasks(self, *places: tuple[str, int]) -> tuple[str, ...]:
        """Returns the tasks with records at each of these labels and lengths."""
        return tuple(
            task
            for task in self.tasks
            if all((x, task, length) in self.cells for x, length in places)
        )

    def strata(
        self, label: str, length: int, tasks: Iterable[str] | None = None
    ) -> list[tuple[Record, ...]]:
        """Returns the records by task, of the given tasks (default all); leaves out tasks without records."""
        named = self.tasks_of(label, length) if tasks is None else tasks
        return [self.cells[label, t, length] for t in named if (label, t, length) in self.cells]

    def of(self, label: str) -> list[Record]:
        """Returns all records of a system."""
        return [r for (name, _, _), records in self.cells.items() if name == label for r in records]

    def is_published(self, label: str) -> bool:
        """Whether the label's system sends the published prompt, with the text: else no published figure compares."""
        return all(r.system == ONE_SHOT and not r.task.endswith(CONTROL) for r in self.of(label))

    @property
    def records(self) -> list[Record]:
        """All records."""
        return [record for records in self.cells.values() for record in records]


def sort_records(folders: Mapping[str, Sequence[Record]]) -> list[Suite]:
    """Returns the suites of all folders, in the order in which they first came.

    Args:
        folders: records by the (unique) name of their folder.
    """
    names = _labels(folders)
    by_suite: dict[str, dict[tuple[str, str, int], list[Record]]] = {}
    for folder, records in folders.items():
        for record in records:
            label = names[folder, record.provenance.model, record.system]
            label, task = name_row(label, record.task), record.task.removesuffix(CONTROL)
            cell = (label, _one_line(task), record.length)
            by_suite.setdefault(_one_line(record.suite), {}).setdefault(cell, []).append(record)
    return [_suite(name, cells) for name, cells in by_suite.items()]


def _suite(name: str, cells: dict[tuple[str, str, int], list[Record]]) -> Suite:
    tasks = dict.fromkeys(task for _, task, _ in cells)
    ruler_tasks = [task for task in RULER_TASKS if task in tasks] if name == "ruler" else []
    return Suite(
        name=name,
        labels=tuple(sorted(dict.fromkeys(label for label, _, _ in cells), key=_place)),
        tasks=(*ruler_tasks, *(task for task in tasks if task not in ruler_tasks)),
        lengths=tuple(sorted({length for _, _, length in cells})),
        cells={cell: tuple(sorted(of, key=lambda r: r.index)) for cell, of in cells.items()},
    )


def _place(label: str) -> int:
    """Sort key: as in `memagent-bench systems`, then users' systems; concurrent samples end in any order."""
    system = label.split(" · ")[0]
    return list(SYSTEMS).index(system) if system in SYSTEMS else len(SYSTEMS)


def _labels(folders: Mapping[str, Sequence[Record]]) -> dict[tuple[str, str, str], str]:
    """Returns the label for each folder, model and system: as short as is unambiguous."""
    models = dict.fromkeys(r.provenance.model for records in folders.values() for r in records)
    short = _shorten(models)
    labels: dict[tuple[str, str, str], str] = {}
    owners: dict[tuple[str, object], set[str]] = {}
    for folder, records in folders.items():
        for record in records:
            model, system = record.provenance.model, record.system
            label = system if len(models) == 1 else f"{system} · {short[model]}"
            label = _one_line(label)
            labels[folder, model, system] = label
            place = (record.suite, record.task, record.length, record.index)
            owners.setdefault((label, place), set()).add(folder)
    # The same sample under the same label in two folders: two runs that must be distinguished.
    twice = {label for (label, _), where in owners.items() if len(where) > 1}
    return {
        key: f"{label} · {key[0]}" if label in twice else label for key, label in labels.items()
    }


def _one_line(name: str) -> str:
    """Makes a name fit in a title: no control characters, which some libraries refuse, and no line ends."""
    return " ".join(clean(name).split()) or "unnamed"


def _shorten(models: Iterable[str]) -> dict[str, str]:
    """Shortens each model's name to its last part, unless another model shares it."""
    names = list(models)
    last = [name.rstrip("/").rsplit("/", 1)[-1] or name for name in names]
    return {
        name: end if last.count(end) == 1 else name for name, end in zip(names, last, strict=True)
    }
