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
    """The records of one suite. A *label* names a system, with its model where there are several."""

    name: str
    labels: tuple[str, ...]
    """In the order in which they first came."""
    tasks: tuple[str, ...]
    """RULER's in RULER's order, others as they came."""
    lengths: tuple[int, ...]
    """Rising."""
    cells: Mapping[tuple[str, str, int], tuple[Record, ...]]
    """By label, task and length; no cell is empty."""

    def tasks_of(self, label: str, length: int) -> tuple[str, ...]:
        """Tasks that the system has records of at that length."""
        return tuple(task for task in self.tasks if (label, task, length) in self.cells)

    def lengths_of(self, label: str) -> tuple[int, ...]:
        """Lengths that the system has records of."""
        return tuple(length for length in self.lengths if self.tasks_of(label, length))

    def shared_tasks(self, *places: tuple[str, int]) -> tuple[str, ...]:
        """Tasks with records at each of these labels and lengths."""
        return tuple(
            task
            for task in self.tasks
            if all((x, task, length) in self.cells for x, length in places)
        )

    def strata(
        self, label: str, length: int, tasks: Iterable[str] | None = None
    ) -> list[tuple[Record, ...]]:
        """Records by task, of the tasks named (all that there are); tasks without records are left out."""
        named = self.tasks_of(label, length) if tasks is None else tasks
        return [self.cells[label, t, length] for t in named if (label, t, length) in self.cells]

    def of(self, label: str) -> list[Record]:
        """All records of a system."""
        return [r for (name, _, _), records in self.cells.items() if name == label for r in records]

    def is_published(self, label: str) -> bool:
        """Whether the label's system sends the published prompt, with the text: else no published figure compares."""
        return all(r.system == ONE_SHOT and not r.task.endswith(CONTROL) for r in self.of(label))

    @property
    def records(self) -> list[Record]:
        """All records."""
        return [record for records in self.cells.values() for record in records]


def sort_records(folders: Mapping[str, Sequence[Record]]) -> list[Suite]:
    """The suites of all folders, in the order in which they first came.

    Args:
        folders: records by the name of their folder, each name once.
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
    """As `memagent-bench systems` lists them, then those of users: concurrent samples end in any order."""
    system = label.split(" · ")[0]
    return list(SYSTEMS).index(system) if system in SYSTEMS else len(SYSTEMS)


def _labels(folders: Mapping[str, Sequence[Record]]) -> dict[tuple[str, str, str], str]:
    """Label by folder, model and system: as short as tells them apart."""
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
    # The same sample under the same label in two folders: two runs, which have to be told apart.
    twice = {label for (label, _), where in owners.items() if len(where) > 1}
    return {
        key: f"{label} · {key[0]}" if label in twice else label for key, label in labels.items()
    }


def _one_line(name: str) -> str:
    """A name that can stand in a title: no control characters, which some libraries refuse, and no line ends."""
    return " ".join(clean(name).split()) or "unnamed"


def _shorten(models: Iterable[str]) -> dict[str, str]:
    """Last part of each model's name, the whole name where that is another one's too."""
    names = list(models)
    last = [name.rstrip("/").rsplit("/", 1)[-1] or name for name in names]
    return {
        name: end if last.count(end) == 1 else name for name, end in zip(names, last, strict=True)
    }
