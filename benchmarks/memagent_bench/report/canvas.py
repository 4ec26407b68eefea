"""matplotlib, loaded on first use: figures without a window or global state, in the page's style."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from io import BytesIO, StringIO
from typing import Any

from memagent_bench.report.theme import LIGHT

DPI = 200
"""Resolution of PNG files: sharp in print at column width."""
TICK_SIZE = 8.5
_INK, _SOFT, _RULE = LIGHT["ink"], LIGHT["soft"], LIGHT["rule"]
_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": _SOFT,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.labelcolor": _SOFT,
    "axes.labelsize": 9.5,
    "axes.linewidth": 0.7,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": _INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "errorbar.capsize": 0,
    "figure.facecolor": LIGHT["paper"],
    "font.family": "sans-serif",
    "font.size": 9.5,
    "grid.color": _RULE,
    "grid.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.labelcolor": _INK,
    "lines.linewidth": 1.6,
    "lines.markersize": 5.5,
    # Text in an SVG stays text: searchable, and in the page's font.
    "svg.fonttype": "none",
    # The same chart always gets the same ids, so the same records give the same page.
    "svg.hashsalt": "memagent",
    "text.color": _INK,
    # A `$` in a model's name doesn't start a formula.
    "text.parse_math": False,
    "xtick.color": _SOFT,
    "xtick.labelsize": TICK_SIZE,
    "ytick.color": _SOFT,
    "ytick.labelsize": 9,
    "ytick.major.size": 0,
}


def style() -> AbstractContextManager[None]:
    """Applies the style within the context; the caller's own matplotlib settings have no effect."""
    mpl: Any = import_module("matplotlib")
    return mpl.rc_context(dict(mpl.rcParamsDefault) | {"backend": mpl.rcParams["backend"]} | _STYLE)


def new_figure(width: float, height: float) -> Any:
    """Returns an empty figure. Sizes are in inches, 72 units each in an SVG."""
    return import_module("matplotlib.figure").Figure(figsize=(width, height))


def ticker() -> Any:
    """Returns matplotlib.ticker."""
    return import_module("matplotlib.ticker")


def logarithmic(axis: Any, ratio: float) -> None:
    """Puts ticks of a logarithmic axis at round numbers, more of them if the ratio of its ends is small."""
    subs = (1.0,) if ratio > 200 else (1.0, 2.0, 5.0)
    axis.set_major_locator(ticker().LogLocator(base=10, subs=subs, numticks=12))
    axis.set_minor_locator(ticker().NullLocator())
    axis.set_major_formatter(ticker().FuncFormatter(_tick))


def _tick(value: float, _position: int | None = None) -> str:
    """`0.5`, `20`, `5k`, `10M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size * 0.999:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def as_png(figure: Any, **how: Any) -> bytes:
    """Returns the picture as PNG, without the program's name in it."""
    out = BytesIO()
    figure.savefig(out, format="png", dpi=DPI, metadata={"Software": None}, **how)
    return out.getvalue()


def as_svg(figure: Any) -> str:
    """Returns the drawing as SVG, without a date in it."""
    out = StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    return out.getvalue()
