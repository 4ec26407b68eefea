"""Differences and tests, against numbers worked by hand, published examples and scipy."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from memagent.errors import ConfigError
from memagent.tasks import statistics
from memagent.tasks.statistics import Estimate, Z, estimate
from memagent_bench.significance import (
    Difference,
    PValue,
    Verdict,
    holm,
    non_inferiority,
    paired_difference,
    sign_flip_test,
    unpaired_difference,
)


def proportion(right: int, n: int) -> Estimate:
    return estimate([[1.0] * right + [0.0] * (n - right)])


def difference(low: float, mean: float, high: float) -> Difference:
    return Difference(mean, low, high, 100, paired=True, method="")


def test_no_pairs_are_an_error() -> None:
    with pytest.raises(ConfigError, match="leave empty cells out"):
        paired_difference([])


@pytest.mark.parametrize(
    ("draw", "truth"),
    [
        (lambda rng: paired_difference([rng.binomial(1, 0.7, 60) - rng.binomial(1, 0.5, 60)]), 0.2),
        (
            lambda rng: paired_difference(
                [(rng.binomial(4, [[0.9], [0.8]], (2, 30)) / 4).T @ [1, -1]]
            ),
            0.1,
        ),
        # Pairs that are equal tell nothing: with a bootstrap of these, 175 of 200 held the truth.
        (lambda rng: paired_difference(rng.choice([-1, 0, 1], (2, 30), p=[0.05, 0.9, 0.05])), 0.0),
        (
            lambda rng: paired_difference([rng.binomial(1, p, 30) for p in (0.6, *[0.02] * 6)]),
            0.72 / 7,
        ),
        (
            lambda rng: unpaired_difference(
                *(proportion(int(rng.binomial(50, p)), 50) for p in (0.9, 0.7))
            ),
            0.2,
        ),
    ],
    ids=["pairs", "partial-pairs", "few-pairs-that-differ", "unlike-tasks", "unpaired"],
)
def test_intervals_hold_the_truth_in_about_95_of_100_trials(
    draw: Callable[[np.random.Generator], Difference], truth: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "RESAMPLES", 400)
    rng = np.random.default_rng(7)
    held = sum(one.low <= truth <= one.high for one in (draw(rng) for _ in range(200)))
    assert held >= 180  # 190 are expected; less than 180 of 200 has a chance of one in a thousand


def test_paired_difference_by_hand() -> None:
    """100 pairs, 10 better and 5 worse: (10.5 - 5.5)/102, variance (16/102 - that^2)/102 (Agresti and Min 2005)."""
    one = paired_difference([[1.0] * 10 + [-1.0] * 5 + [0.0] * 85])
    centre = 5 / 102
    half = Z * math.sqrt((16 / 102 - centre**2) / 102)
    assert one.mean == pytest.approx(0.05)
    assert (one.low, one.high) == pytest.approx((centre - half, centre + half))
    assert (one.low, one.high) == pytest.approx((-0.0272, 0.1253), abs=1e-4)
    assert (one.paired, one.n, one.method) == (True, 100, "Agresti-Min")


def test_equal_pairs_do_not_prove_equality() -> None:
    one = paired_difference([[0.0] * 128])
    assert (one.mean, one.low, one.high) == (0.0, -one.high, pytest.approx(0.0151, abs=1e-4))


def test_paired_difference_over_tasks_is_unweighted() -> None:
    """40 and 20 pairs weigh as 4 / (1/40 + 1/20) = 160/3. Mean squares are 5/32 and 1/16."""
    one = paired_difference([[0.5, 0.25] * 20, [-0.25] * 20])
    mean, n = 0.0625, 160 / 3
    assert one.mean == pytest.approx(mean)
    centre, variance = n * mean / (n + 2), (5 / 32 + 1 / 16) / 2 - mean**2
    half = Z * math.sqrt(n * variance + 1 + 2 * centre * mean) / (n + 2)
    assert (one.low, one.high) == pytest.approx((centre - half, centre + half))


def test_an_interval_excludes_0_only_if_signs_are_not_chance() -> None:
    """Whatever the number of rounds: 2 of 2 and 2 of 2 pairs of one sign, or 10 of 10 against 4 of 4."""
    for rounds, (more, less, sign) in product((19, 20, 21, 30), ((2, 2, 1.0), (10, 4, -1.0))):
        strata = [
            [1.0] * more + [0.0] * (rounds - more),
            [sign] * less + [0.0] * (rounds - less),
        ]
        assert sign_flip_test(strata).p > 0.1
        assert paired_difference(strata).low < 0


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
    assert sign_flip_test([[0.0] * 9]) == PValue(1.0, exact=True)
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
