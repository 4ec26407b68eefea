"""Statistics of scores: means with intervals, differences, tests, verdicts.

Scores are fractions in [0, 1]. A sample has a score for each task, so most functions take *strata*: one sequence of
values a task. The mean over strata is unweighted, as RULER's: each task counts the same, however many samples it has.
Intervals are two-sided at 95%. Everything random has a fixed seed, so the same records give the same page.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memagent.errors import ConfigError

Values: TypeAlias = Sequence[float]
Strata: TypeAlias = Sequence[Values]
"""Values by task."""
Array: TypeAlias = NDArray[np.float64]

Z = 1.959963984540054
"""97.5% quantile of the normal distribution."""
RESAMPLES = 2000
"""Of a bootstrap: the ends of a 95% interval then rest on 50 resamples each."""
FEW = 20
"""With fewer samples in any task a bootstrap of scores near 1 is too narrow (it held the truth in 85% of trials with
10 samples of each of 8 tasks, instead of 95%), and the closed forms take its place."""
FLIPS = 9999
"""Of a permutation test that is not exact; the smallest p it can give is 2/10000."""
SEED = 20250703
"""Of everything random here; any fixed number would do."""


@dataclass(frozen=True)
class Estimate:
    """A mean score."""

    mean: float
    """With unscored samples counted as 0."""
    low: float
    high: float
    n: int
    unscored: int
    scored_mean: float | None
    """Without the unscored samples; None where all are."""
    method: str
    """`Wilson` or `bootstrap`."""


@dataclass(frozen=True)
class Difference:
    """A mean score less another one."""

    mean: float
    low: float
    high: float
    n: int
    """Pairs, or samples of the smaller side."""
    paired: bool
    method: str


@dataclass(frozen=True)
class PValue:
    """Two-sided."""

    p: float
    exact: bool
    """All sign flips were counted, not a random choice of them."""


class Verdict(StrEnum):
    """Of a non-inferiority test."""

    NON_INFERIOR = "non-inferior"
    """The whole interval of the difference lies above minus the margin."""
    INFERIOR = "inferior"
    """The whole interval lies below it."""
    INCONCLUSIVE = "inconclusive"
    """The interval holds minus the margin: there are too few samples to tell."""


def wilson(mean: float, n: float) -> tuple[float, float]:
    """Wilson's score interval of a proportion (Wilson 1927).

    (mean + z^2/2n ± z sqrt(mean (1 - mean)/n + z^2/4n^2)) / (1 + z^2/n). The variance of any scores in [0, 1] is at
    most mean (1 - mean), so for scores that are not all 0 or 1 the interval is only wider than it needs to be.

    Args:
        mean: in [0, 1].
        n: samples, more than 0; the effective number of a weighted mean may be a fraction.
    """
    centre = mean + Z * Z / (2 * n)
    half = Z * (mean * (1 - mean) / n + Z * Z / (4 * n * n)) ** 0.5
    scale = 1 + Z * Z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def estimate(strata: Iterable[Sequence[float | None]]) -> Estimate:
    """Unweighted mean over tasks of their mean scores, None counted as 0.

    One task whose scores are all 0 or 1 has Wilson's interval. Otherwise samples are drawn again within each task
    (stratified BCa bootstrap, Efron 1987). Where a task has fewer than `FEW` samples, or each task's scores are all
    equal, Wilson's interval stands in, with the effective number of samples 1 / sum of squared weights.

    Raises:
        ConfigError: there is no sample.
    """
    given = [list(scores) for scores in strata if len(scores)]
    if not given:
        raise ConfigError("a mean of no samples was asked for; leave empty cells out")
    arrays = [np.array([score or 0.0 for score in scores]) for scores in given]
    scored = [[s for s in scores if s is not None] for scores in given]
    means = [float(np.mean(scores)) for scores in scored if scores]
    mean = float(np.mean([values.mean() for values in arrays]))
    n = sum(map(len, given))
    binary = len(arrays) == 1 and bool(np.isin(arrays[0], (0.0, 1.0)).all())
    if binary or _too_few(arrays):
        (low, high), method = wilson(mean, _effective(arrays)), "Wilson"
    else:
        (low, high), method = _bootstrap(arrays), "bootstrap"
    return Estimate(
        mean=mean,
        low=min(low, mean),
        high=max(high, mean),
        n=n,
        unscored=n - sum(map(len, scored)),
        scored_mean=float(np.mean(means)) if means else None,
        method=method,
    )


def amount_interval(strata: Iterable[Values]) -> tuple[float, float, float]:
    """Unweighted mean over tasks of amounts without a bound (seconds, tokens), with its bootstrap interval.

    Returns:
        Mean, low, high; the three are equal where the amounts of each task are.

    Raises:
        ConfigError: there is no amount.
    """
    arrays = [np.array(list(values), dtype=float) for values in strata if len(values)]
    if not arrays:
        raise ConfigError("a mean of no amounts was asked for; leave empty cells out")
    mean = float(np.mean([values.mean() for values in arrays]))
    if all(values.min() == values.max() for values in arrays):
        return mean, mean, mean
    low, high = _bootstrap(arrays)
    return mean, min(low, mean), max(high, mean)


def paired_difference(strata: Iterable[Values]) -> Difference:
    """Unweighted mean over tasks of differences of the same samples.

    Differences of one task that are all -1, 0 or 1 have the interval of Agresti and Min (2005, Statistics in Medicine
    24), which adds two pairs, half a one to each of the four outcomes. Otherwise pairs are drawn again within each
    task, as in `estimate`; where that will not do, the first interval stands in, with the mean square of the
    differences in the place of the share of pairs that differ.

    Raises:
        ConfigError: there is no pair.
    """
    arrays = [np.array(list(values), dtype=float) for values in strata if len(values)]
    if not arrays:
        raise ConfigError("a difference of no pairs was asked for; leave empty cells out")
    mean = float(np.mean([values.mean() for values in arrays]))
    signs = len(arrays) == 1 and bool(np.isin(arrays[0], (-1.0, 0.0, 1.0)).all())
    if signs or _too_few(arrays):
        n = _effective(arrays)
        centre = n * mean / (n + 2)
        square = (n * float(np.mean([np.mean(values**2) for values in arrays])) + 1) / (n + 2)
        half = Z * ((square - centre**2) / (n + 2)) ** 0.5
        (low, high), method = (max(-1.0, centre - half), min(1.0, centre + half)), "Agresti-Min"
    else:
        (low, high), method = _bootstrap(arrays), "bootstrap"
    pairs = sum(map(len, arrays))
    return Difference(mean, min(low, mean), max(high, mean), pairs, paired=True, method=method)


def unpaired_difference(a: Estimate, b: Estimate) -> Difference:
    """`a` less `b`, of different samples: the square-and-add interval of Newcombe (1998, method 10).

    low = d - sqrt((a - a.low)^2 + (b.high - b)^2), high = d + sqrt((a.high - a)^2 + (b - b.low)^2). It holds for any
    two independent estimates with intervals (Zou and Donner 2008), so for bootstrap ones too.
    """
    mean = a.mean - b.mean
    low = mean - float(np.hypot(a.mean - a.low, b.high - b.mean))
    high = mean + float(np.hypot(a.high - a.mean, b.mean - b.low))
    n = min(a.n, b.n)
    return Difference(mean, max(-1.0, low), min(1.0, high), n, paired=False, method="Newcombe")


def sign_flip_test(strata: Iterable[Values]) -> PValue:
    """Whether the mean of paired differences is 0: sign-flip permutation test (Fisher 1935), two-sided.

    Under the hypothesis each difference might as well have the other sign. Differences of 0 change nothing and are left
    out. Where all others weigh the same this is the sign test (McNemar's, exact), a binomial one; else up to 13
    differences are flipped in all ways, and more of them at random.
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
    """Adjusted p-values, in the order given (Holm 1979).

    The i-th smallest of m, from 0, is multiplied by m - i, and is at least the one before: below alpha, it may be
    called significant with a chance of at most alpha that any one of the family is so wrongly.
    """
    m = len(p_values)
    adjusted = [0.0] * m
    worst = 0.0
    for rank, at in enumerate(sorted(range(m), key=lambda i: p_values[i])):
        worst = max(worst, min(1.0, (m - rank) * p_values[at]))
        adjusted[at] = worst
    return adjusted


def non_inferiority(difference: Difference, margin: float) -> Verdict:
    """Whether a score is lower by less than the margin, from the interval of the difference.

    Of a 95% interval the lower end alone is a one-sided test at 2.5%.

    Args:
        difference: new less old.
        margin: as a fraction, more than 0.

    Raises:
        ConfigError: the margin is not in (0, 1].
    """
    if not 0 < margin <= 1:
        raise ConfigError(f"margin={margin!r} is not in (0, 1]; 0.05 is five points")
    if difference.low > -margin:
        return Verdict.NON_INFERIOR
    return Verdict.INFERIOR if difference.high < -margin else Verdict.INCONCLUSIVE


def effective_length(means: Mapping[int, float], threshold: float) -> int | None:
    """The longest length whose mean score reaches the threshold (RULER, arXiv 2404.06654), None if none does."""
    return max((length for length, mean in means.items() if mean >= threshold), default=None)


def mean_over_lengths(means: Mapping[int, float], *, increasing: bool) -> float:
    """RULER's weighted average: the k lengths weigh 1..k, the longest most if `increasing`, else the shortest.

    Raises:
        ConfigError: there is no length.
    """
    if not means:
        raise ConfigError("an average over no lengths was asked for")
    values = [means[length] for length in sorted(means, reverse=not increasing)]
    return float(np.average(values, weights=range(1, len(values) + 1)))


def _effective(arrays: Sequence[Array]) -> float:
    """Number of equally weighed samples whose mean varies as much as the unweighted mean over strata does."""
    return len(arrays) ** 2 / sum(1 / len(values) for values in arrays)


def _too_few(arrays: Sequence[Array]) -> bool:
    """Whether a bootstrap of scores is too narrow, or has no width at all."""
    return min(map(len, arrays)) < FEW or all(values.min() == values.max() for values in arrays)


def _bootstrap(arrays: Sequence[Array]) -> tuple[float, float]:
    def mean_of_means(*samples: Array, axis: int = -1) -> Array:
        return np.mean([values.mean(axis=axis) for values in samples], axis=0)

    # scipy takes no sample of one value; twice the same value is drawn like it.
    arrays = [values if len(values) > 1 else values.repeat(2) for values in arrays]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Where hardly any value differs from the others, there is no BCa interval, which scipy warns of.
        warnings.simplefilter("ignore")
        result = _scipy().bootstrap(
            tuple(arrays),
            mean_of_means,
            n_resamples=RESAMPLES,
            batch=max(1, 2_000_000 // max(map(len, arrays))),
            vectorized=True,
            paired=False,
            method="BCa",
            rng=np.random.default_rng(SEED),
        )
    low, high = (float(end) for end in result.confidence_interval)
    if np.isfinite([low, high]).all():
        return low, high
    low, high = np.percentile(result.bootstrap_distribution, (2.5, 97.5))
    return float(low), float(high)


def _scipy() -> Any:
    """scipy.stats, which has no types, loaded when it is first used."""
    return import_module("scipy.stats")
