"""Statistics, against numbers worked by hand, published examples and scipy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from memagent.errors import ConfigError
from memagent_bench import stats
from memagent_bench.stats import (
    Difference,
    Estimate,
    Verdict,
    amount_interval,
    effective_length,
    estimate,
    holm,
    mean_over_lengths,
    non_inferiority,
    paired_difference,
    sign_flip_test,
    unpaired_difference,
    wilson,
)

SCORES = st.lists(st.sampled_from([None, 0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=30)


def proportion(right: int, n: int) -> Estimate:
    return estimate([[1.0] * right + [0.0] * (n - right)])


def difference(low: float, mean: float, high: float) -> Difference:
    return Difference(mean, low, high, 100, paired=True, method="")


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
    half = stats.Z * math.sqrt(0.125 / 100)  # the variance of five equal steps is 0.125
    assert one.method == "bootstrap"
    assert (one.low, one.high) == pytest.approx((0.5 - half, 0.5 + half), abs=0.008)
    assert estimate(scores) == one  # the seed is fixed


def test_a_bootstrap_without_bca_interval_is_quiet(recwarn: pytest.WarningsRecorder) -> None:
    one = estimate([[1.0] * 199 + [0.999]])
    assert 0.99 < one.low <= one.mean <= one.high <= 1
    assert not recwarn.list


@pytest.mark.parametrize("given", [[], [[]]])
@pytest.mark.parametrize("function", [estimate, paired_difference, amount_interval])
def test_no_samples_are_an_error(function: Callable[..., object], given: list[list[float]]) -> None:
    with pytest.raises(ConfigError, match="leave empty cells out"):
        function(given)


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
        (lambda rng: paired_difference([rng.binomial(1, 0.7, 60) - rng.binomial(1, 0.5, 60)]), 0.2),
        (
            lambda rng: paired_difference(
                [(rng.binomial(4, [[0.9], [0.8]], (2, 30)) / 4).T @ [1, -1]]
            ),
            0.1,
        ),
        (
            lambda rng: unpaired_difference(
                *(proportion(int(rng.binomial(50, p)), 50) for p in (0.9, 0.7))
            ),
            0.2,
        ),
    ],
    ids=["partial", "tasks", "few", "pairs", "partial-pairs", "unpaired"],
)
def test_intervals_hold_the_truth_in_about_95_of_100_trials(
    draw: Callable[[np.random.Generator], Estimate], truth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "RESAMPLES", 400)
    rng = np.random.default_rng(7)
    held = sum(one.low <= truth <= one.high for one in (draw(rng) for _ in range(200)))
    assert held >= 180  # 190 are expected; less than 180 of 200 has a chance of one in a thousand


def test_amounts() -> None:
    assert amount_interval([[2.0, 2.0], [4.0]]) == (3.0, 3.0, 3.0)
    mean, low, high = amount_interval([[1.0, 2.0, 3.0] * 20])
    assert mean == pytest.approx(2.0)
    assert 1.7 < low < 1.85
    assert 2.15 < high < 2.3


def test_paired_difference_by_hand() -> None:
    """100 pairs, 10 better and 5 worse: (10.5 - 5.5)/102, variance (16/102 - that^2)/102 (Agresti and Min 2005)."""
    one = paired_difference([[1.0] * 10 + [-1.0] * 5 + [0.0] * 85])
    centre = 5 / 102
    half = stats.Z * math.sqrt((16 / 102 - centre**2) / 102)
    assert one.mean == pytest.approx(0.05)
    assert (one.low, one.high) == pytest.approx((centre - half, centre + half))
    assert (one.low, one.high) == pytest.approx((-0.0272, 0.1253), abs=1e-4)
    assert (one.paired, one.n, one.method) == (True, 100, "Agresti-Min")


def test_equal_pairs_do_not_prove_equality() -> None:
    one = paired_difference([[0.0] * 128])
    assert (one.mean, one.low, one.high) == (0.0, -one.high, pytest.approx(0.0151, abs=1e-4))


def test_paired_difference_over_tasks_is_unweighted() -> None:
    one = paired_difference([[0.5, 0.25] * 20, [-0.25] * 20])
    assert one.mean == pytest.approx((0.375 - 0.25) / 2)
    assert one.method == "bootstrap"
    assert one.low < one.mean < one.high


def test_unpaired_difference_is_newcombes_example() -> None:
    """56/70 against 48/80 gives 0.0524 to 0.3339 by method 10 (Newcombe 1998, table II)."""
    one = unpaired_difference(proportion(56, 70), proportion(48, 80))
    assert (one.mean, one.paired) == (pytest.approx(0.2), False)
    assert (one.low, one.high) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_sign_flips_by_hand() -> None:
    # Of eight ways to flip three, two reach 0.6 or more on either side.
    assert sign_flip_test([[0.1, 0.2, 0.3]]).p == pytest.approx(2 / 8)
    # 0.1 - 0.2 + 0.3 = 0.2 is reached by 4 of 8 on either side, ties among them.
    assert sign_flip_test([[0.1, -0.2, 0.3]]).p == pytest.approx(6 / 8)
    assert sign_flip_test([[0.1, 0.2, 0.3]]).exact


def test_equal_differences_have_the_exact_sign_test() -> None:
    """McNemar's: zeros say nothing; 5 of 5 have p = 2 / 2^5, 9 of 10 have 2 * 11 / 2^10."""
    assert sign_flip_test([[1.0] * 5 + [0.0] * 50]).p == pytest.approx(2 / 32)
    result = sign_flip_test([[1.0] * 9 + [-1.0]])
    assert (result.p, result.exact) == (pytest.approx(22 / 1024), True)


def test_no_difference_has_p_1() -> None:
    assert sign_flip_test([[0.0] * 9]) == stats.PValue(1.0, exact=True)
    assert sign_flip_test([]).p == 1.0


def test_many_unequal_differences_are_flipped_at_random() -> None:
    rng = np.random.default_rng(3)
    none = [list(rng.choice([-0.5, -0.25, 0.25, 0.5], 60))]
    shifted = [[value + 0.5 for value in none[0]]]
    assert not sign_flip_test(none).exact
    assert sign_flip_test(none).p > 0.05
    assert sign_flip_test(shifted).p == pytest.approx(2 / 10000)
    assert sign_flip_test(none) == sign_flip_test(none)


def test_a_true_hypothesis_is_rejected_about_once_in_twenty() -> None:
    rng = np.random.default_rng(5)
    trials = [sign_flip_test([list(rng.choice([-1.0, -0.5, 0.5, 1.0], 9))]).p for _ in range(300)]
    assert sum(p <= 0.05 for p in trials) <= 26  # 15 expected at most; more than 26 once in 200


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.04, 0.03, Verdict.NON_INFERIOR),
        (0.01, 0.03, Verdict.NON_INFERIOR),
        (-0.05, 0.03, Verdict.INCONCLUSIVE),  # the margin itself is not ruled out
        (-0.2, -0.01, Verdict.INCONCLUSIVE),
        (-0.2, -0.06, Verdict.INFERIOR),
    ],
)
def test_non_inferiority(low: float, high: float, verdict: Verdict) -> None:
    assert non_inferiority(difference(low, (low + high) / 2, high), 0.05) is verdict


@pytest.mark.parametrize("margin", [0, -0.05, 5, math.nan])
def test_a_margin_is_a_fraction(margin: float) -> None:
    with pytest.raises(ConfigError, match="five points"):
        non_inferiority(difference(-0.1, 0, 0.1), margin)


def test_effective_length() -> None:
    means = {8192: 0.95, 16384: 0.80, 32768: 0.856, 65536: 0.85}
    assert effective_length(means, 0.856) == 32768
    assert effective_length({8192: 0.5}, 0.856) is None
    assert effective_length({}, 0.856) is None


def test_averages_over_lengths_are_rulers() -> None:
    """GPT-4's row of the table of arXiv 2404.06654: 91.6 on average, 89.0 increasing, 94.1 decreasing."""
    means = dict(zip([4, 8, 16, 32, 64, 128], [96.6, 96.3, 95.2, 93.2, 87.0, 81.2], strict=True))
    assert sum(means.values()) / 6 == pytest.approx(91.6, abs=0.05)
    assert mean_over_lengths(means, increasing=True) == pytest.approx(89.0, abs=0.05)
    assert mean_over_lengths(means, increasing=False) == pytest.approx(94.1, abs=0.05)
    with pytest.raises(ConfigError):
        mean_over_lengths({}, increasing=True)
