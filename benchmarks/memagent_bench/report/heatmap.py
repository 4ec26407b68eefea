"""Scores by length and task, or depth, as coloured cells with numbers: as a PNG file, and as cells of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from memagent.tasks.statistics import Estimate, estimate
from memagent.texts import show_length
from memagent_bench.report.canvas import as_png, new_figure, style
from memagent_bench.report.cells import Suite
from memagent_bench.report.compare import Mean, scores
from memagent_bench.report.theme import LIGHT

DEPTHS = 10
"""Rows of a depth map."""


@dataclass(frozen=True)
class HeatMap:
    """A row for each task of a system and one for their mean, a row for each depth, or for each task and policy."""

    label: str
    lengths: tuple[int, ...]
    rows: tuple[tuple[str, tuple[Estimate | None, ...]], ...]
    """Row labels, and scores by length; None where nothing was run."""
    kind: Literal["task", "depth", "arm"] = "task"
    """Kind of the rows."""

    @property
    def has_mean(self) -> bool:
        """Whether the last row is the mean of the others."""
        return self.kind == "task" and len(self.rows) > 1


def heat_map(suite: Suite, label: str, means: dict[tuple[str, int], Mean]) -> HeatMap:
    """Returns the scores of a system at all lengths of the suite."""
    rows = [
        (task, tuple(_cell(suite, label, task, length) for length in suite.lengths))
        for task in suite.tasks
    ]
    if len(rows) > 1:
        row_means = [means.get((label, length)) for length in suite.lengths]
        rows.append(("mean", tuple(mean.estimate if mean else None for mean in row_means)))
    return HeatMap(label, suite.lengths, tuple(rows))


def depth_map(suite: Suite, label: str) -> HeatMap | None:
    """Returns the scores of a system by the answer's depth, in tenths of the document; None if no sample says it.

    Uses samples with one place that answers: needles, last notes. Tasks are pooled with equal weight.
    """
    cells: dict[tuple[int, int], dict[str, list[float | None]]] = {}
    for record in suite.of(label):
        places = [place for place in record.evidence if place.supports]
        if len(places) == 1:
            depth = min(DEPTHS * places[0].start // record.chars, DEPTHS - 1)
            cell = cells.setdefault((depth, record.length), {})
            cell.setdefault(record.task, []).append(record.score)
    if not cells:
        return None
    lengths = tuple(sorted({length for _, length in cells}))
    rows = tuple(
        (
            f"{100 * depth // DEPTHS}–{100 * (depth + 1) // DEPTHS}%",
            tuple(
                estimate(cell.values()) if (cell := cells.get((depth, length))) else None
                for length in lengths
            ),
        )
        for depth in range(DEPTHS)
    )
    return HeatMap(label, lengths, rows, "depth")


def _cell(suite: Suite, label: str, task: str, length: int) -> Estimate | None:
    strata = suite.strata(label, length, [task])
    return estimate(scores(strata)) if strata else None


def blend(score: float) -> tuple[str, int]:
    """Returns the end of the scale that a score is nearer to, and how much of its colour it takes, in percent."""
    return ("good" if score >= 0.5 else "bad"), round(abs(score - 0.5) * 200)


def heat_map_png(heat: HeatMap, suite: str) -> bytes:
    """Draws the map as a PNG.

    Args:
        heat: what to draw.
        suite: the first line of the title.
    """
    columns, rows = len(heat.lengths), len(heat.rows)
    # Letters of a task are about 0.085 inches wide, bold ones of the title 0.1.
    margin = 0.25 + 0.085 * max(len(task) for task, _ in heat.rows)
    width = max(margin + 0.62 * columns + 0.15, 0.2 + 0.1 * max(len(heat.label), len(suite)))
    height = 0.95 + 0.3 * rows
    place = (margin / width, 0.05 / height, 0.62 * columns / width, 0.3 * rows / height)
    with style():
        figure = new_figure(width, height)
        _fill(figure.add_axes(place), heat)
        where = {"x": 0.1 / width, "y": 1 - 0.12 / height, "va": "top"}
        figure.text(s=f"{suite}\n{heat.label}", weight="bold", **where)
        return as_png(figure)


def _fill(axes: Any, heat: HeatMap) -> None:
    axes.set_xlim(0, len(heat.lengths))
    axes.set_ylim(len(heat.rows), 0)
    for y, (task, estimates) in enumerate(heat.rows):
        weight = "bold" if heat.has_mean and y == len(heat.rows) - 1 else "normal"
        axes.text(-0.12, y + 0.5, task, ha="right", va="center", weight=weight)
        for x, score in enumerate(estimates):
            if score is None:
                axes.text(x + 0.5, y + 0.5, "–", ha="center", va="center", color=LIGHT["soft"])
                continue
            axes.bar(x + 0.5, 0.94, 0.96, bottom=y + 0.03, color=colour(score.mean))
            text = f"{100 * score.mean:.0f}"
            axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", weight=weight)
    axes.xaxis.tick_top()
    axes.set_xticks(
        [x + 0.5 for x in range(len(heat.lengths))], [show_length(n) for n in heat.lengths]
    )
    axes.tick_params(length=0, colors=LIGHT["soft"])
    axes.set_yticks([])
    axes.set_frame_on(False)
    axes.grid(visible=False)


def colour(score: float) -> str:
    """Returns the light theme's colour of a score, mixed in sRGB like the page's `color-mix`."""
    end, percent = blend(score)
    mixed = (
        round(
            int(LIGHT["paper"][i : i + 2], 16) * (100 - percent) / 100
            + int(LIGHT[end][i : i + 2], 16) * percent / 100
        )
        for i in (1, 3, 5)
    )
    return "#" + "".join(f"{part:02x}" for part in mixed)
