"""Colours: one set for light paper, one for dark, both distinguishable with colour blindness.

A chart is drawn once, in the light set. On the page its colours become CSS variables, so it follows the reader's theme.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LIGHT = {
    "paper": "#fdfdfc",
    "ink": "#1b1e23",
    "soft": "#5c636d",
    "rule": "#dcdfe3",
    "good": "#5ea3da",
    "bad": "#eb9a5c",
}
DARK = {
    "paper": "#14161a",
    "ink": "#e7e9ec",
    "soft": "#a2a9b3",
    "rule": "#343941",
    "good": "#22639b",
    "bad": "#9a4f17",
}
"""`good` and `bad` are the ends of the heat map's scale, `paper` its middle: ink is readable on all of them."""

SERIES = (
    ("#0068b0", "#6be1ff"),  # blue
    ("#cf5a00", "#c76300"),  # vermilion
    ("#3a9a8a", "#4ea267"),  # teal
    ("#882255", "#ee2ba0"),  # wine
    ("#b07d4f", "#ffb442"),  # tan
    ("#332288", "#8e63f2"),  # indigo
    ("#225522", "#a3e189"),  # moss
    ("#101820", "#e3cec4"),  # slate
)
"""Light and dark. Each contrasts at least 3:1 with its paper (WCAG 2.1, 1.4.11), and any two are at least 17 apart in
CIELAB for full colour vision and for each of the three dichromacies (simulated after Machado et al. 2009)."""

MARKERS = (
    *(("o", "●", "○"), ("s", "■", "□"), ("^", "▲", "△"), ("D", "◆", "◇")),
    *(("v", "▼", "▽"), ("P", "✚", "✛"), ("X", "✖", "✕"), ("*", "★", "☆"), ("h", "⬢", "⬡")),
)
"""matplotlib's name, and the character, full and hollow. Nine, so that with eight colours no pair repeats in 72."""


@dataclass(frozen=True)
class Mark:
    """The look of a system in all charts."""

    colour: str
    """Its colour in the light set."""
    marker: str
    """matplotlib's name of the marker."""
    sign: str
    """The marker as a character, for legends on the page."""
    hollow: str
    """The hollow marker, for published series."""
    css: str
    """Name of the CSS variable of its colour."""


def mark(number: int) -> Mark:
    """Returns the look of the series with that number, from 0."""
    colour = number % len(SERIES)
    marker, sign, hollow = MARKERS[number % len(MARKERS)]
    return Mark(SERIES[colour][0], marker, sign, hollow, f"series-{colour}")


def variables(*, dark: bool) -> dict[str, str]:
    """Returns the CSS variables of a theme: name -> colour."""
    named = DARK if dark else LIGHT
    return named | {f"series-{i}": pair[dark] for i, pair in enumerate(SERIES)}


_NAMES = {colour: name for name, colour in variables(dark=False).items()}


def apply_theme(svg: str, prefix: str) -> str:
    """Prepares a chart for embedding in a page: no XML header, unique ids, colours as variables.

    Args:
        svg: matplotlib's output.
        prefix: for ids, different for each chart of a page.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\bid="([^"]*)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r'(xlink:href="#|url\(#)', rf"\1{prefix}-", body)
    body = re.sub(
        r"#[0-9a-f]{6}\b",
        lambda match: f"var(--{_NAMES[match[0]]})" if match[0] in _NAMES else match[0],
        body,
    )
    # The page chooses the size; the shape is in the viewBox.
    return re.sub(
        r'(<svg[^>]*?) width="[^"]*"| height="[^"]*"(?=[^>]*viewBox)', r"\1", body, count=2
    )
