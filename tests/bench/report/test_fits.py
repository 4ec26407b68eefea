"""Fits by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import linregress

from memagent.errors import ConfigError
from memagent_bench.report.fits import against_prediction, straight_line


def test_a_right_prediction() -> None:
    one = against_prediction([1, 10, 100], [1, 10, 100])
    assert one is not None
    assert (one.ratio, one.r2, one.worst) == (1.0, 1.0, 0.0)


def test_ratio_by_hand() -> None:
    """sum pm = 1*2 + 2*3 = 8, sum p^2 = 5: 1.6; residuals 0.4 and -0.2 of a variance of 0.5 in all."""
    one = against_prediction([1, 2], [2, 3])
    assert one is not None
    assert (one.ratio, one.r2) == (pytest.approx(1.6), pytest.approx(1 - (0.16 + 0.04) / 0.5))
    assert one.worst == pytest.approx(0.25)  # 2 / 1.6 - 1


def test_equal_amounts_have_no_r2() -> None:
    one = against_prediction([1, 1, 1], [1, 1, 1])
    assert one is not None
    assert (one.ratio, one.r2) == (1.0, None)


def test_nothing_used() -> None:
    one = against_prediction([5, 6], [0, 0])
    assert one is not None
    assert (one.ratio, one.worst) == (0.0, 0.0)


@pytest.mark.parametrize("predicted", [[], [0, 5]])
def test_no_prediction(predicted: list[float]) -> None:
    assert against_prediction(predicted, [1.0] * len(predicted)) is None


def test_line_is_scipys() -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(1e3, 1e6, 50)
    y = 3 + 2e-4 * x + rng.normal(0, 5, 50)
    expected: Any = linregress(x, y)
    one = straight_line(list(x), list(y))
    assert one is not None
    assert (one.slope, one.intercept) == pytest.approx((expected.slope, expected.intercept))
    assert one.r2 == pytest.approx(expected.rvalue**2)
    residuals = np.abs(y - expected.intercept - expected.slope * x)
    assert one.worst == pytest.approx(residuals.max() / y.max())


@pytest.mark.parametrize("tokens", [[], [8000], [8000, 8000]])
def test_one_length_has_no_line(tokens: list[float]) -> None:
    assert straight_line(tokens, [1.0] * len(tokens)) is None


def test_flat_and_zero_amounts() -> None:
    flat, none = straight_line([1, 2], [3, 3]), straight_line([1, 2], [0, 0])
    assert flat is not None
    assert none is not None
    assert (flat.slope, flat.r2, flat.worst) == (0.0, None, 0.0)
    assert none.worst == 0.0


def test_a_bad_fit_is_no_rate() -> None:
    """Two of the lines that a slow server drew: times that fall, and times that scatter."""
    falling = straight_line([8000, 16000, 32000], [3.0, 2.9, 2.5])
    scattered = straight_line([8000, 8000, 16000, 16000], [1.0, 9.0, 2.0, 9.5])
    good = straight_line([8000, 16000, 32000], [1.0, 2.1, 3.9])
    assert falling is not None
    assert scattered is not None
    assert good is not None
    assert falling.problem == "no growth with the length"
    assert scattered.problem == "no straight line: R² 0.01"
    assert good.problem == ""


def test_values_come_in_pairs() -> None:
    with pytest.raises(ConfigError, match="1 and 2 values"):
        against_prediction([1], [1, 2])
