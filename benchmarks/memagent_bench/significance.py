"""Differences of scores: intervals, tests, verdicts.

Scores and strata are those of `memagent.tasks.statistics`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any

import numpy as np

from memagent.errors import ConfigError
from memagent.tasks.statistics import (
    SEED,
    Estimate,
    Values,
    Z,
    effective_samples,
)

FLIPS = 9999
"""Random flips in a permutation test that isn't exact; the smallest p it can give is 2/10000."""


@dataclass(frozen=True)
class Difference:
    """A mean score minus another one."""

    mean: float
    low: float
    high: float
    n: int
    """Pairs, or samples of the smaller side."""
    paired: bool
    method: str


@dataclass(frozen=True)
class PValue:
    """A two-sided p-value."""

    p: float
    exact: bool
    """Whether all sign flips were counted, not a random sample of them."""


class Verdict(StrEnum):
    """Result of a non-inferiority test."""

    NON_INFERIOR = "non-inferior"
    """The whole interval of the difference is above minus the margin."""
    INFERIOR = "inferior"
    """The whole interval is below minus the margin."""
    INCONCLUSIVE = "inconclusive"
    """The interval includes minus the margin: there are too few samples to tell."""


def paired_difference(strata: Iterable[Values]) -> Difference:
    """Estimates the unweighted mean over tasks of differences of the same samples.

    The interval is that of Agresti and Min (2005, Statistics in Medicine 24), which adds two pairs, half a one to each
    of the four outcomes. Of n differences with mean d and variance s it is

        n d / (n + 2) ± z sqrt(n s + 1 + 2 n d^2 / (n + 2)) / (n + 2).

    For several tasks, n is the effective number of pairs, and s the variance as if all pairs were of one task: where
    tasks differ, the interval is wide rather than narrow.

    Raises:
        ConfigError: there are no pairs.
    """
    arrays = [np.array(list(values), dtype=float) for values in strata if len(values)]
    if not arrays:
        raise ConfigError("the difference of no pairs is undefined; leave empty cells out")
    mean, n = float(np.mean([values.mean() for values in arrays])), effective_samples(arrays)
    variance = float(np.mean([np.mean(values**2) for values in arrays])) - mean**2
    centre = n * mean / (n + 2)
    half = Z * (n * variance + 1 + 2 * centre * mean) ** 0.5 / (n + 2)
    low, high = max(-1.0, centre - half), min(1.0, centre + half)
    pairs = sum(map(len, arrays))
    return Difference(mean, low, high, pairs, paired=True, method="Agresti-Min")


def unpaired_difference(a: Estimate, b: Estimate) -> Difference:
    """Estimates `a` minus `b`, of different samples, with the square-and-add interval of Newcombe (1998, method 10).

    low = d - sqrt((a - a.low)^2 + (b.high - b)^2), high = d + sqrt((a.high - a)^2 + (b - b.low)^2). It holds for any
    two independent estimates with intervals (Zou and Donner 2008), so for bootstrap ones too.
    """
    mean = a.mean - b.mean
    low = mean - float(np.hypot(a.mean - a.low, b.high - b.mean))
    high = mean + float(np.hypot(a.high - a.mean, b.mean - b.low))
    n = min(a.n, b.n)
    return Difference(mean, max(-1.0, low), min(1.0, high), n, paired=False, method="Newcombe")


def sign_flip_test(strata: Iterable[Values]) -> PValue:
    """Tests whether the mean of paired differences is 0: sign-flip permutation test (Fisher 1935), two-sided.

    Under the null hypothesis each difference could as well have the other sign. Differences of 0 are left out, as they
    change nothing. If all others have the same weight, this is the sign test (McNemar's, exact), a binomial one;
    otherwise up to 13 differences are flipped in all ways, more at random.
    """
    arrays = [np.array(list(values), dtype=float) for values in strata if len(values)]
    weighed = np.concatenate([values / len(values) for values in arrays] or [np.empty(0)])
    moved = weighed[weighed != 0]
    if not len(moved):
        return PValue(1.0, exact=True)
    if np.allclose(np.abs(moved), abs(moved[0])):
        result = _scipy().binomtest(int((moved > 0).sum()), len(moved), 0.5)
        return PValue(float(result.pvalue), exact=True)
    result = _scipy().permutation_test(
        (moved,),
        np.sum,
        permutation_type="samples",
        n_resamples=FLIPS,
        batch=1000,
        vectorized=True,
        rng=np.random.default_rng(SEED),
    )
    return PValue(min(1.0, float(result.pvalue)), exact=2 ** len(moved) <= FLIPS)


def holm(p_values: Values) -> list[float]:
    """Returns adjusted p-values, in the order given (Holm 1979).

    The i-th smallest of m, from 0, is multiplied by m - i, and is at least the one before. Calling those below alpha
    significant gives a chance of at most alpha that any one of the family is so wrongly.
    """
    m = len(p_values)
    adjusted = [0.0] * m
    worst = 0.0
    for rank, at in enumerate(sorted(range(m), key=lambda i: p_values[i])):
        worst = max(worst, min(1.0, (m - rank) * p_values[at]))
        adjusted[at] = worst
    return adjusted


def non_inferiority(difference: Difference, margin: float) -> Verdict:
    """Decides whether a score is lower by less than the margin, from the interval of the difference.

    The lower end of a 95% interval is a one-sided test at 2.5%.

    Args:
        difference: new minus old.
        margin: as a fraction, above 0.

    Raises:
        ConfigError: the margin is not in (0, 1].
    """
    if not 0 < margin <= 1:
        raise ConfigError(f"margin must be in (0, 1] (0.05 is five points), got {margin!r}")
    if difference.low > -margin:
        return Verdict.NON_INFERIOR
    return Verdict.INFERIOR if difference.high < -margin else Verdict.INCONCLUSIVE


def _scipy() -> Any:
    """Returns scipy.stats, which has no types, loaded on first use."""
    return import_module("scipy.stats")
