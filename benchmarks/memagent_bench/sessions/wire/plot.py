"""One session with each system, step by step: the prompt's size, and what it still contains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memagent_bench.report.canvas import as_png, new_figure, style, ticker
from memagent_bench.report.theme import LIGHT, mark
from memagent_bench.sessions.record import SessionRecord

PLOT = "steps.png"
WIDTH, HEIGHT = 7.0, 1.35
"""Width of the picture and height of each row of panels, in inches."""
COLUMNS = 2


def choose(records: Sequence[SessionRecord]) -> list[SessionRecord]:
    """Returns the records to draw: the first work with its most steps, the first deal with each system."""
    wired = [record for record in records if record.wired is not None and record.wired.prompts]
    if not wired:
        return []
    game = min(record.game for record in wired)
    difficulty = max(record.difficulty for record in wired if record.game == game)
    first: dict[str, SessionRecord] = {}
    for record in sorted(wired, key=lambda record: record.seed):
        if (record.game, record.difficulty) == (game, difficulty):
            first.setdefault(record.arm.label, record)
    return list(first.values())


def plot_steps(records: Sequence[SessionRecord]) -> bytes | None:
    """Draws the picture as PNG, a panel for each system; None if there is nothing to draw.

    A cross marks the end of a session without the right answer.
    """
    chosen = choose(records)
    if not chosen:
        return None
    rows = -(-len(chosen) // COLUMNS)
    with style():
        figure = new_figure(WIDTH, HEIGHT * rows + 0.5)
        panels = figure.subplots(rows, COLUMNS, sharex=True, sharey=True, squeeze=False).flatten()
        figure.subplots_adjust(hspace=0.45, wspace=0.08)
        for panel, record in zip(panels, chosen, strict=False):
            _draw(panel, record)
        for panel in panels[len(chosen) :]:
            panel.set_visible(False)
        panels[0].set_ylim(-0.04, 1.08)
        panels[0].yaxis.set_major_formatter(ticker().PercentFormatter(1.0, decimals=0))
        lines, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            lines, labels, loc="lower left", bbox_to_anchor=(0.1, -0.02), ncols=2, frameon=False
        )
        figure.supxlabel("replies of the model", fontsize=9, y=0.03)
        return as_png(figure, bbox_inches="tight")


def _draw(panel: Any, record: SessionRecord) -> None:
    wired, size = record.wired, record.arm.working_context
    assert wired is not None
    assert size is not None
    steps = range(1, len(wired.prompts) + 1)
    shares = {
        "prompt, of the window": [prompt / size for prompt in wired.prompts],
        "facts told so far that the prompt holds": wired.kept,
    }
    for number, (label, values) in enumerate(shares.items()):
        panel.plot(steps, values, color=mark(number).colour, label=label, linewidth=1.2)
    panel.set_title(record.arm.label, loc="left", pad=4, fontsize=9)
    if record.score != 1:
        panel.plot([steps[-1]], [wired.prompts[-1] / size], "x", color=LIGHT["ink"], markersize=7)
