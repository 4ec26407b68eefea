"""Whether cost grows as it should: measured amounts against predicted ones, and against a straight line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memagent.errors import ConfigError

LEAST_R2 = 0.5
"""Below it, a line leaves more of the variance than it explains: the length isn't what mattered."""


@dataclass(frozen=True)
class Ratio:
    """Measured amounts as a multiple of predicted ones."""

    ratio: float
    """1 if the prediction is right overall."""
    r2: float | None
    """Share of the variance that the multiple explains; None if the measured amounts are all equal."""
    worst: float
    """Largest |measured / (ratio * predicted) - 1|."""


@dataclass(frozen=True)
class Line:
    """A straight line through measured amounts."""

    slope: float
    """Increase of the amount per token of the document."""
    intercept: float
    r2: float | None
    """None if the amounts are all equal."""
    worst: float
    """Largest distance of an amount from the line, relative to the largest amount."""

    @property
    def problem(self) -> str:
        """Why the slope isn't a rate; empty if it is."""
        if self.slope <= 0:
            return "no growth with the length"
        if self.r2 is not None and self.r2 < LEAST_R2:
            return f"no straight line: R² {self.r2:.2f}"
        return ""


def against_prediction(predicted: Sequence[float], measured: Sequence[float]) -> Ratio | None:
    """Fits least squares through the origin: ratio = sum(p m) / sum(p^2).

    R^2 = 1 - sum((m - ratio p)^2) / sum((m - mean(m))^2).

    Returns:
        None without samples, or if all predictions are 0.

    Raises:
        ConfigError: the two have different lengths.
    """
    p, m = _pair(predicted, measured)
    if not len(p) or not p.all():
        return None
    ratio = float(p @ m / (p @ p))
    worst = float(np.max(np.abs(m / (ratio * p) - 1))) if ratio else 0.0
    return Ratio(ratio, _r2(m, ratio * p), worst)


def straight_line(tokens: Sequence[float], measured: Sequence[float]) -> Line | None:
    """Fits ordinary least squares of an amount on the length of the document.

    Returns:
        None without two different lengths.

    Raises:
        ConfigError: the two have different lengths.
    """
    x, y = _pair(tokens, measured)
    if len(x) < 2 or x.min() == x.max():
        return None
    dx = x - x.mean()
    slope = float(dx @ (y - y.mean()) / (dx @ dx))
    intercept = float(y.mean() - slope * x.mean())
    fitted = intercept + slope * x
    largest = float(np.max(np.abs(y)))
    worst = float(np.max(np.abs(y - fitted))) / largest if largest else 0.0
    return Line(slope, intercept, _r2(y, fitted), worst)


def _pair(a: Sequence[float], b: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    if len(a) != len(b):
        raise ConfigError(f"{len(a)} and {len(b)} values cannot be compared one by one")
    return np.array(a, dtype=float), np.array(b, dtype=float)


def _r2(measured: np.ndarray, fitted: np.ndarray) -> float | None:
    total = float(((measured - measured.mean()) ** 2).sum())
    return None if total == 0 else 1 - float(((measured - fitted) ** 2).sum()) / total
