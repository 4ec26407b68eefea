"""Line charts against the length of the document, as PNG and as SVG for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memagent.cli.output import amount
from memagent_bench.lengths import show_length
from memagent_bench.report.canvas import TICK_SIZE, as_png, as_svg, new_figure, style, ticker
from memagent_bench.report.theme import LIGHT, Mark, themed

WIDTH, HEIGHT = 5.0, 3.4
"""Inches of 72 units: in the page a unit is a pixel or a little more, so text of 10 units is readable on a phone."""
LETTER = 0.64 * TICK_SIZE
"""Units that a digit of a tick's name takes."""


@dataclass(frozen=True)
class Point:
    """A value with its interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Series:
    """One line: a system."""

    label: str
    mark: Mark
    points: Mapping[int, Point]
    """By length."""
    predicted: Mapping[int, float] = field(default_factory=dict[int, float])
    """By length, drawn as a dotted line."""
    published: bool = False
    """Drawn thin, hollow and dashed, without interval."""


@dataclass(frozen=True)
class Chart:
    """What is to be drawn."""

    name: str
    """Of the PNG file, without suffix."""
    title: str
    axis: str
    """What the values are, with the unit."""
    series: Sequence[Series]
    scores: bool = False
    """Values are scores: a linear axis from 0 to 100 points; else both axes are logarithmic."""


def png(chart: Chart) -> bytes:
    """The chart with title and legend."""
    with style():
        figure, axes = _drawn(chart)
        axes.set_title(chart.title, loc="left", pad=10)
        handles, labels = axes.get_legend_handles_labels()
        longest = max(map(len, labels), default=0)
        axes.legend(
            handles,
            labels,
            loc="upper left",
            bbox_to_anchor=(0, -0.17),
            ncols=2 if longest <= 32 else 1,
            frameon=False,
            borderaxespad=0,
        )
        return as_png(figure, bbox_inches="tight")


def svg(chart: Chart, prefix: str) -> str:
    """The chart for the page, which has title and legend itself."""
    with style():
        figure, _ = _drawn(chart)
        figure.set_layout_engine("tight", pad=0.3)
        return themed(as_svg(figure), prefix)


def in_words(chart: Chart) -> str:
    """The chart for people who do not see it."""
    parts: list[str] = []
    for series in chart.series:
        values = [
            f"{_value(chart, point.mean)} at {show_length(length)}"
            for length, point in sorted(series.points.items())
        ]
        parts.append(f"{series.label}: {', '.join(values) or 'no values'}.")
    return f"Line chart, {chart.axis} against length. {' '.join(parts)}"


def _value(chart: Chart, value: float) -> str:
    return f"{100 * value:.1f}" if chart.scores else _short(value)


def _short(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else amount(value)


def _drawn(chart: Chart) -> tuple[Any, Any]:
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.add_subplot()
    measured = [series for series in chart.series if not series.published]
    for series in chart.series:
        if series.published:
            _published(axes, series, chart.scores)
    for i, series in enumerate(measured):
        # Systems stand a little apart, or one would hide another; all within 40% of a doubling.
        apart = min(0.07, 0.4 / len(measured))
        shift = 2 ** (apart * (i - (len(measured) - 1) / 2))
        _measured(axes, series, chart.scores, shift)
    if any(series.predicted for series in measured):
        axes.plot([], [], ":", color=LIGHT["soft"], linewidth=1.2, label="predicted")
    _length_axis(axes, sorted({n for s in chart.series for n in (*s.points, *s.predicted)}))
    _value_axis(axes, chart)
    return figure, axes


def _measured(axes: Any, series: Series, scores: bool, shift: float) -> None:
    unit = 100 if scores else 1
    points = [(n, p) for n, p in sorted(series.points.items()) if scores or p.mean > 0]
    xs, ys = [n * shift for n, _ in points], [p.mean * unit for _, p in points]
    # A logarithmic axis has no place for an interval that reaches 0: it is cut at a hundredth of the mean.
    down = [(p.mean - (p.low if scores else max(p.low, p.mean / 100))) * unit for _, p in points]
    up = [(p.high - p.mean) * unit for _, p in points]
    axes.errorbar(
        xs,
        ys,
        yerr=(down, up),
        color=series.mark.colour,
        marker=series.mark.marker,
        label=series.label,
        zorder=3,
    )
    if series.predicted:
        predicted = sorted((n * shift, v) for n, v in series.predicted.items() if v > 0)
        axes.plot(
            *zip(*predicted, strict=True), ":", color=series.mark.colour, linewidth=1.2, zorder=2
        )


def _published(axes: Any, series: Series, scores: bool) -> None:
    unit = 100 if scores else 1
    lengths = sorted(series.points)
    axes.plot(
        lengths,
        [series.points[n].mean * unit for n in lengths],
        linestyle=(0, (4, 2.5)),
        linewidth=0.9,
        color=LIGHT["soft"],
        marker=series.mark.marker,
        markerfacecolor=LIGHT["paper"],
        markersize=4.5,
        label=series.label,
        zorder=1,
    )


def _length_axis(axes: Any, lengths: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    first, last = lengths[0], lengths[-1]
    axes.set_xlim(first / 1.35, last * 1.35)
    span = (last * 1.35) / (first / 1.35)
    room = LETTER * max(len(show_length(length)) for length in lengths) + 3.5
    shown = _apart(lengths, span ** (room / (72 * WIDTH * 0.86)))
    axes.xaxis.set_minor_locator(ticker().NullLocator())
    axes.set_xticks(lengths, [show_length(n) if n in shown else "" for n in lengths])
    axes.set_xlabel("length of the document in tokens")


def _apart(lengths: Sequence[int], factor: float) -> list[int]:
    """The lengths whose names do not touch, the longest always among them."""
    kept = [lengths[-1]]
    for length in reversed(lengths):
        if length * factor <= kept[-1]:
            kept.append(length)
    return kept[::-1]


def _value_axis(axes: Any, chart: Chart) -> None:
    axes.set_ylabel(chart.axis)
    if chart.scores:
        axes.set_ylim(-3, 103)
        axes.set_yticks(range(0, 101, 20))
        return
    values = [
        v for s in chart.series for p in s.points.values() for v in (p.low, p.mean, p.high) if v > 0
    ]
    values += [v for s in chart.series for v in s.predicted.values() if v > 0]
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    axes.set_yscale("log")
    axes.set_ylim(low / 1.5, max(high * 1.5, low * 4))
    subs = (1.0,) if high / low > 200 else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(ticker().LogLocator(base=10, subs=subs, numticks=12))
    axes.yaxis.set_minor_locator(ticker().NullLocator())
    axes.yaxis.set_major_formatter(ticker().FuncFormatter(_tick))


def _tick(value: float, _position: int | None = None) -> str:
    """`0.5`, `20`, `5k`, `10M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.999:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
