"""Learning curves."""

from __future__ import annotations

from pathlib import Path

from memagent_bench.report.canvas import as_png, new_figure, style
from memagent_bench.report.theme import mark
from memagent_nano.results import Results

NAMES = {
    "shown-grpo": "(a) then GRPO",
    "unshown-grpo": "(b) then GRPO",
}


def learning(results: Results, file: Path) -> None:
    """Reward of held-out samples by step, a line a seed."""
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
