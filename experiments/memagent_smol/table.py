"""The table of arms: right answers of each policy and system in each cell that was measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from memagent.tasks.statistics import estimate
from memagent.texts import show_length
from memagent_bench.records import read_records


def table(folders: Sequence[Path]) -> list[str]:
    """In Markdown, with 95% intervals; a sample without an answer counts as wrong.

    Args:
        folders: one an arm, as `measure` wrote them; its name stands in the table.

    Raises:
        StoreError: a folder has no records.
    """
    found: dict[tuple[str, str], dict[tuple[str, int], list[float | None]]] = {}
    for folder in folders:
        for record in read_records(folder):
            of_row = found.setdefault((folder.name, record.system), defaultdict(list))
            of_row[record.task, record.length].append(record.score)
    cells = sorted({cell for of_row in found.values() for cell in of_row})
    titles = ["Arm", "System", *(f"{task}, {show_length(length)}" for task, length in cells)]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for (arm, system), of_row in found.items():
        shown = [_cell(of_row[cell]) if cell in of_row else "-" for cell in cells]
        lines.append(f"| {' | '.join([arm, f'`{system}`', *shown])} |")
    return lines


def _cell(scores: Sequence[float | None]) -> str:
    one = estimate([scores])
    return f"{one.mean:.3f} [{one.low:.3f}, {one.high:.3f}] (n={one.n})"
