"""The heat map of arms: right answers by task and length, before and after a training."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from memagent.tasks.statistics import estimate
from memagent_bench.records import read_records
from memagent_bench.report.heatmap import HeatMap, heat_map_png
from memagent_smol.measure import MEMORY_GATE, SUITE, UNTRAINED


def picture(folders: Sequence[Path], file: Path) -> None:
    """Writes a PNG file with a row for each task and arm, for readings with a memory.

    Args:
        folders: one per arm, as `measure` wrote them; the picture has its name.
        file: to write.

    Raises:
        StoreError: a folder has no records.
    """
    scores: dict[tuple[str, Path], dict[int, list[float | None]]] = {}
    for folder in folders:
        for record in read_records(folder):
            if record.system in (MEMORY_GATE, UNTRAINED):
                of_row = scores.setdefault((record.task, folder), defaultdict(list))
                of_row[record.length].append(record.score)
    lengths = tuple(sorted({length for of_row in scores.values() for length in of_row}))
    tasks = sorted({task for task, _ in scores}, key=_in_order)
    rows = [
        (
            f"{task}, {folder.name}",
            tuple(estimate([of_row[n]]) if n in of_row else None for n in lengths),
        )
        for task in tasks
        for folder in folders
        if (of_row := scores.get((task, folder)))
    ]
    heat = HeatMap("right answers in 100, by arm and length", lengths, tuple(rows), "arm")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(heat_map_png(heat, SUITE))


def _in_order(task: str) -> tuple[str, int]:
    name, _, many = task.partition("_")
    return name, int(many or 0)
