"""Scores predictions made elsewhere, like a benchmark's answers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memagent.errors import ConfigError
from memagent.tasks import SCORERS
from memagent.tasks.statistics import Estimate, estimate
from memagent.texts import show_length
from memagent_bench.lines import PredictionLine, read_lines
from memagent_bench.table import align

MEAN = "(mean)"


@dataclass(frozen=True)
class PredictionScore:
    """The predictions of one task and length, or the mean over the tasks of a length."""

    task: str
    length: int | None
    """Length in tokens; None if the lines don't name one."""
    scorers: tuple[str, ...]
    estimate: Estimate
    folders: tuple[str, ...] = ()
    """Folders of the task's files: those of several folders are scored together."""


def score_predictions(files: Iterable[Path], scorer: str | None = None) -> list[PredictionScore]:
    """Scores files of predictions, by length and task; several tasks of a length are followed by their unweighted mean.

    Args:
        files: JSON lines, each with `prediction` (RULER's `pred`) and `outputs` (the references), maybe with `task`,
            `scorer` and `max_length`. A line without a task belongs to one named like its file. A file that is named
            twice counts once.
        scorer: for all lines; None: each line's own, else its task's.

    Raises:
        ConfigError: a file can't be read, a line isn't a prediction, or a scorer is unknown.
    """
    scores_by_length: dict[int | None, dict[str, list[float | None]]] = defaultdict(
        lambda: defaultdict(list)
    )
    names: dict[tuple[int | None, str], dict[str, None]] = defaultdict(dict)
    folders: dict[tuple[int | None, str], dict[str, None]] = defaultdict(dict)
    for path in {path.resolve(): path for path in files}.values():  # each once
        for _, line, task, name in read_lines(path, PredictionLine, scorer):
            names[line.max_length, task][name] = None
            folders[line.max_length, task][str(path.resolve().parent)] = None
            text = line.prediction
            scores_by_length[line.max_length][task].append(
                None if text is None else SCORERS[name](text, line.outputs)
            )
    if not scores_by_length:
        raise ConfigError(
            "these files contain no predictions: name files of JSON lines with prediction and outputs"
        )
    rows: list[PredictionScore] = []
    for length in sorted(scores_by_length, key=lambda length: length or 0):
        tasks = scores_by_length[length]
        rows += [
            PredictionScore(
                task,
                length,
                tuple(names[length, task]),
                estimate([scores]),
                tuple(folders[length, task]),
            )
            for task, scores in tasks.items()
        ]
        if len(tasks) > 1:
            rows.append(PredictionScore(MEAN, length, (), estimate(tasks.values())))
    return rows


def lines_of(rows: Sequence[PredictionScore]) -> list[str]:
    """Returns the table's lines, its header first."""
    cells: list[tuple[str, ...]] = [("task", "length", "n", "no answer", "score (95%)", "scorer")]
    for row in rows:
        of = row.estimate
        cells.append(
            (
                row.task,
                "" if row.length is None else show_length(row.length),
                f"{of.n:,}",
                f"{of.unscored:,}",
                f"{of.mean:.3f} ({of.low:.3f} to {of.high:.3f})",
                ", ".join(row.scorers),
            )
        )
    if all(row.length is None for row in rows):
        cells = [(task, *rest) for task, _, *rest in cells]
    return align(cells)
