"""Tables of arms: right answers of each policy and system in each measured cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from memagent.tasks.statistics import estimate
from memagent.texts import show_length
from memagent_bench.records import read_records


def tables(folders: Sequence[Path]) -> str:
    """Returns a Markdown table for each length, with 95% intervals; rows are arms or tasks, whichever are more.

    A sample without an answer counts as wrong.

    Args:
        folders: one per arm, as `measure` wrote them; the table has its name.

    Raises:
        StoreError: a folder has no records.
    """
    lengths: dict[int, dict[tuple[str, str], list[float | None]]] = {}
    for folder in folders:
        for record in sorted(read_records(folder), key=lambda record: record.system):
            arm = f"{folder.name} `{record.system}`"
            lengths.setdefault(record.length, defaultdict(list))[arm, record.task].append(
                record.score
            )
    return "\n\n".join(_table(length, lengths[length]) for length in sorted(lengths))


def _table(length: int, scores: dict[tuple[str, str], list[float | None]]) -> str:
    arms = list(dict.fromkeys(arm for arm, _ in scores))
    tasks = sorted({task for _, task in scores})
    grid = [[show_length(length), *tasks]]
    grid += [[arm, *(_cell(scores.get((arm, task))) for task in tasks)] for arm in arms]
    if len(tasks) > len(arms):
        grid = [list(column) for column in zip(*grid, strict=True)]
    titles, *rows = [f"| {' | '.join(row)} |" for row in grid]
    return "\n".join([titles, "|---" * len(grid[0]) + "|", *rows])


def _cell(scores: Sequence[float | None] | None) -> str:
    if scores is None:
        return "-"
    share = estimate([scores])
    return f"{share.mean:.3f} [{share.low:.3f}, {share.high:.3f}] (n={share.n})"
