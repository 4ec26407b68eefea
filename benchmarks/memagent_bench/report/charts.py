"""Line charts against document length, as PNG and as SVG for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import fill
from typing import Any

from memagent.tasks.statistics import Estimate
from memagent.terminal import amount
from memagent.texts import show_length
from memagent_bench.report.canvas import (
    TICK_SIZE,
    as_png,
    as_svg,
    logarithmic,
    new_figure,
    style,
    ticker,
)
from memagent_bench.report.theme import LIGHT, Mark, apply_theme

WIDTH, HEIGHT = 5.0, 3.4
"""Size in inches of 72 units: on the page a unit is about a pixel or more, so 10-unit text is readable on a phone."""
PLACE = (0.125, 0.15, 0.86, 0.82)
"""Axes: left, bottom, width and height as parts of the figure, with room for `100k` and the axis title."""
LETTER = 0.68 * TICK_SIZE
"""Width of a digit in a tick label, in units."""
PREDICTED = "predicted"
TITLE, NOTE = 48, 72
"""Maximum characters of a title and a note per line."""


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
    points: Mapping[int, Point | Estimate]
    """Length -> value."""
    predicted: Mapping[int, float] = field(default_factory=dict[int, float])
    """Length -> predicted value, drawn as a dotted line."""
    published: bool = False
    """Whether it is drawn thin, hollow and dashed, without intervals."""


@dataclass(frozen=True)
class Chart:
    """The content of a chart."""

    name: str
    """Name of the PNG file, without suffix."""
    title: str
    axis: str
    """Label of the value axis, with the unit."""
    series: Sequence[Series]
    note: str = ""
    """Caveat on the PNG file; the page has it beside the chart."""
    scores: bool = False
    """Whether values are scores, on a linear axis from 0 to 100 points; otherwise both axes are logarithmic."""


def png(chart: Chart) -> bytes:
    """Draws the chart with title and legend."""
    with style():
        figure, axes = draw(chart)
        axes.set_title(fill(chart.title, TITLE), loc="left", pad=10)
        handles = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
        # matplotlib lists lines with intervals after those without.
        labels = sorted(handles, key=[*(s.label for s in chart.series), PREDICTED].index)
        longest = max(map(len, labels), default=0)
        axes.legend(
            [handles[label] for label in labels],
            labels,
            loc="upper left",
            bbox_to_anchor=(0, -0.17),
            ncols=2 if longest <= 32 else 1,
            frameon=False,
            borderaxespad=0,
            title=fill(chart.note, NOTE) or None,
            title_fontsize=8,
            alignment="left",
        )
        return as_png(figure, bbox_inches="tight")


def svg(chart: Chart, prefix: str) -> str:
    """Draws the chart for the page, which has its own title and legend."""
    with style():
        figure, _ = draw(chart)
        return apply_theme(as_svg(figure), prefix)


def in_words(chart: Chart) -> str:
    """Describes the chart in words, for people who can't see it."""
    parts: list[str] = []
    for series in chart.series:
        values = [
            f"{_value(chart, point.mean)} at {show_length(length)}"
            for length, point in sorted(series.points.items())
        ]
        parts.append(f"{series.label}: {', '.join(values) or 'no values'}.")
    return f"Line chart, {chart.axis} against length. {' '.join(parts)}"


def _value(chart: Chart, value: float) -> str:
    return f"{100 * value:.1f}" if chart.scores else _format(value)


def _format(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else amount(value)


def draw(chart: Chart) -> tuple[Any, Any]:
    """Returns the figure and axes of a chart."""
    figure = new_figure(WIDTH, HEIGHT)
    axes = figure.add_axes(PLACE)
    # Before anything is drawn: a logarithmic axis that must find its own limits warns of zeros.
    _length_axis(axes, sorted({n for s in chart.series for n in (*s.points, *s.predicted)}))
    _value_axis(axes, chart)
    measured = [series for series in chart.series if not series.published]
    for i, series in enumerate(measured):
        # Systems are drawn a little apart, so that none hides another; all within 40% of a doubling.
        apart = min(0.07, 0.4 / len(measured))
        shift = 2 ** (apart * (i - (len(measured) - 1) / 2))
        _draw_measured(axes, series, chart.scores, shift)
    for series in chart.series:
        if series.published:
            _draw_published(axes, series, chart.scores)
    if any(series.predicted for series in measured):
        axes.plot([], [], ":", color=LIGHT["soft"], linewidth=1.2, label=PREDICTED)
    return figure, axes


def _draw_measured(axes: Any, series: Series, scores: bool, shift: float) -> None:
    unit = 100 if scores else 1
    points = [(n, p) for n, p in sorted(series.points.items()) if scores or p.mean > 0]
    xs, ys = [n * shift for n, _ in points], [p.mean * unit for _, p in points]
    # A logarithmic axis can't show an interval that reaches 0: it is cut at a hundredth of the mean.
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


def _draw_published(axes: Any, series: Series, scores: bool) -> None:
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
    margin = max(1.35, (last / first) ** 0.06)
    axes.set_xlim(first / margin, last * margin)
    span = last * margin**2 / first
    room = LETTER * max(len(show_length(length)) for length in lengths) + 1.5
    named = _space_out(lengths, span ** (room / (72 * WIDTH * PLACE[2])))
    axes.xaxis.set_minor_locator(ticker().NullLocator())
    axes.set_xticks(lengths, [show_length(n) if n in named else "" for n in lengths])
    axes.set_xlabel("document length in tokens")


def _space_out(lengths: Sequence[int], factor: float) -> list[int]:
    """Returns the lengths whose labels don't overlap, always including the longest."""
    ticks = [lengths[-1]]
    for length in reversed(lengths):
        if length * factor <= ticks[-1]:
            ticks.append(length)
    return ticks[::-1]


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
    logarithmic(axes.yaxis, high / low)
