"""Plots of learning curves, and of answers by length and by depth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memagent.tasks.statistics import Estimate, estimate
from memagent.texts import show_length
from memagent_bench.report.canvas import as_png, new_figure, style
from memagent_bench.report.heatmap import HeatMap, heat_map_png
from memagent_bench.report.theme import mark
from memagent_nano.readings import Trial
from memagent_nano.results import Results
from memagent_nano.survival import SYSTEM, Forecast, Point

NAMES = {
    "shown-grpo": "(a) then GRPO",
    "unshown-grpo": "(b) then GRPO",
}
ASIDE = 1.07
"""Factor by which the points of one length are set side by side."""
PARTS = 4
"""Parts of a document, by the place of the one note that an answer depends on."""


def learning(results: Results, file: Path) -> None:
    """Plots the reward of held-out samples by step, a line per seed."""
    with style():
        figure = new_figure(7.2, 3.6)
        axes = figure.add_subplot()
        for number, (stage, name) in enumerate(NAMES.items()):
            look = mark(number)
            curves = [curve for curve in results.curves if curve.stage == stage]
            for place, curve in enumerate(curves):
                axes.plot(
                    curve.steps,
                    curve.means,
                    color=look.colour,
                    marker=look.marker,
                    markersize=4,
                    alpha=0.85,
                    label=name if place == 0 else None,
                )
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel("steps of reinforcement learning")
        axes.set_ylabel("held-out reward, replies drawn")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(as_png(figure, bbox_inches="tight"))


def survival(points: Sequence[Point], forecasts: Sequence[Forecast], file: Path) -> None:
    """Plots right answers by length with their intervals: measurements, and next to them, hollow, the forecasts."""
    with style():
        figure = new_figure(7.2, 3.6)
        axes = figure.add_subplot()
        for number, (system, task) in enumerate(
            dict.fromkeys((point.system, point.task) for point in points)
        ):
            look = mark(number)
            name = task if system == SYSTEM else f"{task}, {system}"
            task_points = [
                point for point in points if (point.system, point.task) == (system, task)
            ]
            task_forecasts = [cell for cell in forecasts if system == SYSTEM and cell.task == task]
            how = {"color": look.colour, "marker": look.marker, "markersize": 5, "capsize": 2}
            at = [cell.length * ASIDE ** (2 * number) for cell in task_points]
            axes.errorbar(at, **_bars(task_points), **how, label=name)
            if task_forecasts:
                at = [cell.length * ASIDE ** (2 * number + 1) for cell in task_forecasts]
                hollow = {"markerfacecolor": "white", "linestyle": "none", "elinewidth": 1}
                axes.errorbar(
                    at, **_bars(task_forecasts), **how, **hollow, label=f"{name}, said before"
                )
        lengths = sorted({cell.length for cell in (*points, *forecasts)})
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [show_length(length) for length in lengths])
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel("tokens of the document (GPT-2's)")
        axes.set_ylabel("right answers")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(as_png(figure, bbox_inches="tight"))


def _bars(cells: Sequence[Point] | Sequence[Forecast]) -> dict[str, list[Any]]:
    """Returns means, and the extents below and above them."""
    below, above = (
        [cell.mean - cell.low for cell in cells],
        [cell.high - cell.mean for cell in cells],
    )
    return {"y": [cell.mean for cell in cells], "yerr": [below, above]}


def depths(readings: Sequence[Trial], file: Path) -> None:
    """Plots right answers by length and by the note's depth; nested documents have it at about the same share."""
    trials = [trial for trial in readings if trial.system == SYSTEM and trial.behind is not None]
    lengths = tuple(sorted({trial.length for trial in trials}))
    rows: list[tuple[str, tuple[Estimate | None, ...]]] = []
    for task in sorted({trial.task for trial in trials}):
        for part in range(PARTS):
            group = [trial for trial in trials if trial.task == task and _part(trial) == part]
            name = f"{task}, {100 * part // PARTS}-{100 * (part + 1) // PARTS}%"
            rows.append((name, tuple(_estimate_right(group, length) for length in lengths)))
    tasks = {
        task
        for task in {trial.task for trial in trials}
        if {trial.length for trial in trials if trial.task == task} == {*lengths}
    }
    shared = [
        trial for trial in trials if trial.task in tasks
    ]  # documents missing at some lengths would change the mean
    rows.append(("all that have every length", tuple(_estimate_right(shared, n) for n in lengths)))
    file.parent.mkdir(parents=True, exist_ok=True)
    heat = HeatMap("right answers in 100, by depth of the note", lengths, tuple(rows))
    file.write_bytes(heat_map_png(heat, "notes"))


def _part(trial: Trial) -> int:
    return min(PARTS - 1, int(PARTS * (1 - (trial.behind or 0.0))))


def _estimate_right(readings: Sequence[Trial], length: int) -> Estimate | None:
    scores = [trial.score for trial in readings if trial.length == length]
    return estimate([scores]) if scores else None
