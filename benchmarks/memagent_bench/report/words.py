"""How numbers and names read on the page. Scores are fractions in the code and points (0 to 100) for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from memagent.tasks.statistics import Estimate
from memagent_bench.significance import Difference

SUITES = {
    "ruler": "RULER",
    "qa": "Long QA",
    "tracking": "Tracking",
    "notes": "Notes",
    "samples": "Own samples",
}
"""Suites as headings; others are shown by name."""
NOTHING = "–"
"""Shown in place of a missing number."""


def suite_title(name: str) -> str:
    return SUITES.get(name, name)


def points(score: float | None) -> str:
    """Formats a score in points: `91.2`."""
    return NOTHING if score is None else f"{100 * score:.1f}"


def sign_points(score: float) -> str:
    """Formats a difference in points: `+1.2`, `−3.4`, `0.0`."""
    text = f"{100 * score:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text.replace("-", "\u2212")


def interval(of: Estimate) -> str:
    """`88.1–93.7`."""
    return f"{points(of.low)}–{points(of.high)}"


def between(of: Difference) -> str:
    """Formats an interval: `−6.1 to −1.2`; the dash of a range would look like a sign."""
    return f"{sign_points(of.low)} to {sign_points(of.high)}"


def share(fraction: float) -> str:
    """`3%`, `0.4%`; never 0% for something or 100% for less than all."""
    if fraction in (0, 1) or 0.01 <= fraction <= 0.99:
        return f"{100 * fraction:.0f}%"
    return (
        f"{100 * fraction:.1f}%"
        if 0.001 <= fraction <= 0.999
        else "<0.1%"
        if fraction < 0.5
        else ">99.9%"
    )


def p_text(p: float | None) -> str:
    """`0.034`, `< 0.001`."""
    if p is None:
        return NOTHING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def number(value: float | None, digits: int = 2) -> str:
    """Formats a plain number with at most that many decimals."""
    if value is None:
        return NOTHING
    text = f"{value:,.{digits}f}"
    return text.replace("-", "\u2212" if text.strip("-0.") else "")


def join_words(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def span(values: Iterable[str]) -> str:
    """`2026-11-21`, `2026-11-21 to 2026-11-23`: from the first to the last."""
    ordered = sorted(values)
    return ordered[0] if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"
