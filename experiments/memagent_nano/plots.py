"""Learning curves, and answers by length."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from memagent_bench.report.canvas import as_png, new_figure, style
from memagent_bench.report.theme import mark
from memagent_nano.results import Results
from memagent_nano.survival import SYSTEM, Forecast, Point

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


def survival(points: Sequence[Point], forecasts: Sequence[Forecast], file: Path) -> None:
    """Right answers by length: what was measured with intervals, and what was said before as a band."""
    with style():
        figure = new_figure(7.2, 3.6)
        axes = figure.add_subplot()
        for number, (system, task) in enumerate(
            dict.fromkeys((point.system, point.task) for point in points)
        ):
            look = mark(number)
            seen = [point for point in points if (point.system, point.task) == (system, task)]
            of_task = [one for one in forecasts if system == SYSTEM and one.task == task]
            said = sorted(of_task, key=lambda one: one.length)
            at = [one.length for one in said]
            axes.plot(
                at, [one.mean for one in said], color=look.colour, linestyle="--", linewidth=1
            )
            axes.fill_between(
                at, [one.low for one in said], [one.high for one in said],
                color=look.colour, alpha=0.15, linewidth=0,
            )  # fmt: skip
            means = [point.mean for point in seen]
            ends = [
                [point.mean - point.low for point in seen],
                [point.high - point.mean for point in seen],
            ]
            axes.errorbar(
                [point.length for point in seen], means, yerr=ends,
                color=look.colour, marker=look.marker, markersize=4, capsize=2,
                label=task if system == SYSTEM else f"{task}, {system}",
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_ylim(-0.02, 1.02)
        axes.set_xlabel("tokens of the document (GPT-2's)")
        axes.set_ylabel("right answers; dashed: said before")
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(as_png(figure, bbox_inches="tight"))
