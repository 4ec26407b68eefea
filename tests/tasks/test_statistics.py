"""Means and intervals, against numbers worked by hand and scipy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from memagent.errors import ConfigError
from memagent.tasks import statistics
from memagent.tasks.statistics import Estimate, Z, estimate, wilson

SCORES = st.lists(st.sampled_from([None, 0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("right", "n"), [(0, 10), (8, 10), (10, 10), (97, 128), (1, 1), (499, 500)]
)
def test_wilson_is_scipys(right: int, n: int) -> None:
    expected = binomtest(right, n).proportion_ci(method="wilson")
    assert wilson(right / n, n) == pytest.approx((expected.low, expected.high))


def test_wilson_covers_what_it_promises() -> None:
    """Its coverage is a sum over all outcomes: no simulation needed."""
    for n, p in ((10, 0.5), (30, 0.8), (128, 0.9), (500, 0.95)):
        held = [low <= p <= high for low, high in (wilson(k / n, n) for k in range(n + 1))]
        assert 0.92 < float(binom.pmf(np.arange(n + 1), n, p) @ held) < 0.985


def test_unscored_counts_as_zero_and_is_shown_apart() -> None:
    one = estimate([[1.0, 1.0, None, 0.0]])
    assert (one.mean, one.n, one.unscored, one.scored_mean) == (0.5, 4, 1, pytest.approx(2 / 3))
    assert (one.low, one.high, one.method) == (*wilson(0.5, 4), "Wilson")


def test_all_unscored() -> None:
    one = estimate([[None, None]])
    assert (one.mean, one.scored_mean, one.unscored) == (0.0, None, 2)
    assert one.high < 0.7


def test_tasks_weigh_the_same_however_many_samples_they_have() -> None:
    assert estimate([[1.0] * 30, [0.0] * 10]).mean == 0.5


def test_equal_scores_still_have_an_interval() -> None:
    """A bootstrap of ones has no width. Two tasks of 30 and 10 weigh as 4 / (1/30 + 1/10) samples."""
    one = estimate([[1.0] * 30, [1.0] * 10])
    assert (one.low, one.high) == wilson(1.0, 30)
    assert one.low < 0.9
    halves = estimate([[0.5] * 40])
    assert (halves.low, halves.high) == wilson(0.5, 40)


def test_few_samples_have_a_wide_interval() -> None:
    few = estimate([[1.0, 0.75, 1.0] * 3, [1.0] * 9])
    assert few.method == "Wilson"
    assert (few.low, few.high) == wilson(few.mean, 18)


def test_many_partial_scores_have_a_bootstrap_interval() -> None:
    scores = [[0.0, 0.25, 0.5, 0.75, 1.0] * 20]
    one = estimate(scores)
    half = Z * math.sqrt(0.125 / 100)  # the variance of five equal steps is 0.125
    assert one.method == "bootstrap"
    assert (one.low, one.high) == pytest.approx((0.5 - half, 0.5 + half), abs=0.008)
    assert estimate(scores) == one  # the seed is fixed


def test_a_bootstrap_without_bca_interval_is_quiet(recwarn: pytest.WarningsRecorder) -> None:
    one = estimate([[1.0] * 199 + [0.999]])
    assert 0.99 < one.low <= one.mean <= one.high <= 1
    assert not recwarn.list


@pytest.mark.parametrize("given", [[], [[]]])
def test_no_samples_are_an_error(given: list[list[float]]) -> None:
    with pytest.raises(ConfigError, match="leave empty cells out"):
        estimate(given)


@given(st.lists(SCORES, min_size=1, max_size=3))
def test_an_interval_holds_its_mean_and_stays_in_range(strata: list[list[float | None]]) -> None:
    one = estimate(strata)
    assert 0 <= one.low <= one.mean <= one.high <= 1
    assert one.low < one.high


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (lambda rng: estimate([rng.binomial(4, 0.9, 30) / 4]), 0.9),
        (lambda rng: estimate([rng.binomial(k, 0.8, 25) / k for k in (1, 4, 10)]), 0.8),
        (lambda rng: estimate([rng.binomial(k, 0.95, 8) / k for k in (1, 4)]), 0.95),
    ],
    ids=["partial", "tasks", "few"],
)
def test_intervals_hold_the_truth_in_about_95_of_100_trials(
    draw: Callable[[np.random.Generator], Estimate], truth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 400)
    rng = np.random.default_rng(7)
    held = sum(one.low <= truth <= one.high for one in (draw(rng) for _ in range(200)))
    assert held >= 180  # 190 are expected; less than 180 of 200 has a chance of one in a thousand
