"""Prompt tokens against steps, both logarithmic: shows which systems grow linearly and which quadratically."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memagent_bench.report.canvas import as_png, logarithmic, new_figure, style, ticker
from memagent_bench.report.theme import LIGHT, Mark, mark
from memagent_bench.sessions.figures import Cell

PLOT = "prompt-tokens.png"
WIDTH, HEIGHT = 5.6, 4.0
PLACE = (0.12, 0.13, 0.85, 0.78)
"""Axes: left, bottom, width and height as parts of the figure."""
GROWTHS = ((1, ":", "proportional to steps"), (2, (0, (5, 3)), "proportional to steps squared"))
"""Exponent, line style, label."""
APART = 1.03
"""Factor by which series are shifted, so that none hides another."""


def plot(cells: Sequence[Cell]) -> bytes | None:
    """Draws the picture as PNG; None if there are fewer than two difficulties.

    A point is the median of the sessions of a difficulty, with the smallest and largest; hollow if not all were
    solved: then it shows the cost until a session gave up, and no line leads there.
    """
    # A logarithmic axis can't show sessions that ended before anything was sent.
    cells = [cell for cell in cells if cell.prompt_tokens.low > 0]
    difficulties = sorted({cell.difficulty for cell in cells})
    if len(difficulties) < 2:
        return None
    with style():
        figure = new_figure(WIDTH, HEIGHT)
        axes = figure.add_axes(PLACE)
        paid = [cell.prompt_tokens for cell in cells]
        _axes(axes, difficulties, min(p.low for p in paid), max(p.high for p in paid))
        labels = list(dict.fromkeys(cell.arm.label for cell in cells))
        for number, label in enumerate(labels):
            shift = APART ** (number - (len(labels) - 1) / 2)
            _series(axes, mark(number), shift, [c for c in cells if c.arm.label == label])
        _growths(axes, cells[0].prompt_tokens.median, difficulties)
        axes.set_title("Prompt tokens per session", loc="left", pad=10)
        axes.legend(
            loc="upper left",
            bbox_to_anchor=(0, -0.15),
            ncols=2,
            frameon=False,
            borderaxespad=0,
            title="median, smallest and largest; hollow: not all were solved",
            title_fontsize=8,
            alignment="left",
        )
        return as_png(figure, bbox_inches="tight")


def _axes(axes: Any, difficulties: Sequence[int], least: float, most: float) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(difficulties[0] / 1.3, difficulties[-1] * 1.3)
    axes.set_ylim(least / 1.6, most * 1.6)
    axes.set_xticks(difficulties, [f"{n:,}" for n in difficulties])
    axes.xaxis.set_minor_locator(ticker().NullLocator())
    logarithmic(axes.yaxis, most / least)
    axes.set_xlabel("steps that the game needs")
    axes.set_ylabel("prompt tokens")


def _growths(axes: Any, begin: float, difficulties: Sequence[int]) -> None:
    """Draws both growths, from the first point of the first series on."""
    first, last = difficulties[0], difficulties[-1]
    for power, line, words in GROWTHS:
        ends = [begin, begin * (last / first) ** power]
        axes.plot(
            *([first, last], ends),
            color=LIGHT["soft"],
            linestyle=line,
            linewidth=1.0,
            label=words,
            zorder=1,
        )


def _series(axes: Any, look: Mark, shift: float, cells: Sequence[Cell]) -> None:
    solved = [cell for cell in cells if cell.success.mean == 1]
    axes.plot(
        [cell.difficulty * shift for cell in solved],
        [cell.prompt_tokens.median for cell in solved],
        color=look.colour,
        marker=look.marker,
        label=cells[0].arm.label,
        zorder=4,
    )
    for cell in cells:
        x, middle = cell.difficulty * shift, cell.prompt_tokens
        axes.plot([x, x], [middle.low, middle.high], color=look.colour, zorder=3)
        if cell not in solved:
            axes.plot(
                *([x], [middle.median], look.marker),
                color=look.colour,
                markerfacecolor=LIGHT["paper"],
                zorder=4,
            )
