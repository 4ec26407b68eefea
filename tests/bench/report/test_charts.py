"""Charts: what is on them, and that nothing on them collides."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest
from tests.bench.report.made import K

from memagent_bench.report import charts
from memagent_bench.report.canvas import style
from memagent_bench.report.charts import Chart, Point, Series, in_words, png, svg
from memagent_bench.report.theme import DARK, LIGHT, SERIES, mark, variables

RULER = [8 * K * 2**i for i in range(10)]
HOTPOT = [7 * K * 2**i for i in range(10)]


def chart(lengths: list[int], *, scores: bool = True, systems: int = 8) -> Chart:
    values = {n: Point(0.5, 0.4, 0.6) if scores else Point(n, n, n * 1.1) for n in lengths}
    guesses = {} if scores else {n: n * 1.2 for n in lengths}
    lines = [Series(f"system {i}", mark(i), values, guesses) for i in range(systems)]
    return Chart("name", "Title", "points", lines, scores=scores)


@pytest.mark.parametrize(
    "lengths", [RULER, HOTPOT, [8 * K], [8000, 8192, 9000, 16384], [1, 1024 * K * K]]
)
def test_names_of_lengths_do_not_touch(lengths: list[int]) -> None:
    with style():
        figure, axes = charts.draw(chart(lengths))
        unit = figure.dpi / 72
        boxes = [t.get_window_extent() for t in axes.get_xticklabels() if t.get_text()]
    assert boxes
    assert all(a.x1 + 1.5 * unit < b.x0 for a, b in itertools.pairwise(boxes))
    assert boxes[-1].x1 <= charts.WIDTH * figure.dpi
    if lengths in (RULER, HOTPOT):
        assert len(boxes) == 10


@pytest.mark.parametrize("systems", [2, 8, 14])
def test_systems_stand_apart_and_stay_at_their_length(systems: int) -> None:
    with style():
        _, axes = charts.draw(chart([8 * K, 16 * K], systems=systems))
    at = [line.get_xdata()[0] for line in axes.get_lines()]
    assert len(set(at)) == systems
    assert 8 * K / 2**0.25 < min(at) <= max(at) < 8 * K * 2**0.25


def test_marks_are_different() -> None:
    marks = [mark(i) for i in range(72)]
    assert len({(m.colour, m.marker) for m in marks}) == 72
    assert len({m.colour for m in marks[:8]}) == 8


def luminance(colour: str) -> float:
    parts = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(a: str, b: str) -> float:
    """WCAG 2.1."""
    dark, light = sorted((luminance(a), luminance(b)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_everything_can_be_seen(dark: bool) -> None:
    named = DARK if dark else LIGHT
    assert all(contrast(pair[dark], named["paper"]) >= 3 for pair in SERIES)
    assert all(contrast(named["ink"], named[ground]) >= 4.5 for ground in ("paper", "good", "bad"))
    assert contrast(named["soft"], named["paper"]) >= 4.5
    assert set(variables(dark=True)) == set(variables(dark=False))


def test_svg_takes_the_colours_of_the_page() -> None:
    text = svg(chart(RULER), "c1")
    root = ElementTree.fromstring(text)
    assert root.tag.endswith("svg")
    assert "width" not in root.attrib
    assert "viewBox" in root.attrib
    ids = re.findall(r'\bid="([^"]*)"', text)
    assert ids
    assert all(name.startswith("c1-") for name in ids)
    used = set(re.findall(r'(?:xlink:href="#|url\(#)([^")]*)', text))
    assert used <= set(ids)
    assert set(re.findall(r"var\(--([a-z0-9-]+)\)", text)) >= {
        "series-0",
        "series-7",
        "soft",
        "rule",
    }
    assert set(re.findall(r"var\(--([a-z0-9-]+)\)", text)) <= set(variables(dark=False))
    left = set(re.findall(r"#[0-9a-f]{6}\b", text))
    assert left <= {"#000000", "#ffffff"}
    assert "8K" in text
    assert "4M" in text


def test_the_same_chart_is_the_same_file() -> None:
    assert svg(chart(RULER), "c1") == svg(chart(RULER), "c1")
    assert png(chart(RULER)) == png(chart(RULER))
    assert png(chart(RULER)).startswith(b"\x89PNG")


def test_names_are_text_whatever_they_hold() -> None:
    nasty = "<script>alert(1)</script> $x_1$ & \"'"
    line = Series(nasty, mark(0), {8 * K: Point(0.5, 0.5, 0.5)})
    text = svg(Chart("name", nasty, nasty, [line], scores=True), "c1")
    assert "<script>" not in text
    assert nasty in "".join(ElementTree.fromstring(text).itertext())
    assert png(Chart("name", nasty, nasty, [line], scores=True))


@pytest.mark.parametrize("value", [0.0, 1e-9, 1.0, 1e12])
def test_any_amount_can_be_drawn(value: float) -> None:
    line = Series("one", mark(0), {8 * K: Point(value, 0.0, value)}, {8 * K: 0.0})
    assert "NaN" not in svg(Chart("name", "title", "seconds", [line]), "c1")


def test_in_words() -> None:
    one = Chart(
        "n",
        "t",
        "score in points",
        [Series("memory", mark(0), {8 * K: Point(0.91, 0.9, 1)})],
        scores=True,
    )
    assert in_words(one) == "Line chart, score in points against length. memory: 91.0 at 8K."
    line = [Series("direct", mark(0), {8 * K: Point(5900.0, 1, 1), 16 * K: Point(0.5, 1, 1)})]
    assert "direct: 5,900 at 8K, 0.5 at 16K." in in_words(Chart("n", "t", "tokens", line))
