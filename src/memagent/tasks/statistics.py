"""Means of scores (in [0, 1]), with two-sided 95% intervals.

Most functions take *strata*, one sequence of values per task. The mean over strata is unweighted, as in RULER: each
task counts the same, however many samples it has. numpy and scipy come with the extras `bench` and `train`.
"""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memagent.errors import ConfigError

Values: TypeAlias = Sequence[float]
Array: TypeAlias = NDArray[np.float64]

Z = 1.959963984540054
"""97.5% quantile of the normal distribution."""
RESAMPLES = 2000
"""Bootstrap resamples: each end of a 95% interval then rests on 50 of them."""
FEW = 20
"""With fewer samples in any task a bootstrap of scores near 1 is too narrow (it covered the truth in 85% of trials
with 10 samples in each of 8 tasks, instead of 95%), so the closed forms are used instead."""
SEED = 20250703
"""Seed for everything random here; any fixed number would do."""


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
    """Without the unscored samples; None if all are unscored."""
    method: str
    """`Wilson` or `bootstrap`."""


def wilson(mean: float, n: float) -> tuple[float, float]:
    """Returns Wilson's score interval of a proportion (Wilson 1927).

    (mean + z^2/2n ± z sqrt(mean (1 - mean)/n + z^2/4n^2)) / (1 + z^2/n). The variance of any scores in [0, 1] is at
    most mean (1 - mean), so for scores other than 0 or 1 the interval is conservative. The mean
    is in [0, 1]; n > 0 may be a fraction: the effective number of samples of a weighted mean.
    """
    centre = mean + Z * Z / (2 * n)
    half = Z * (mean * (1 - mean) / n + Z * Z / (4 * n * n)) ** 0.5
    scale = 1 + Z * Z / n
    return max(0.0, (centre - half) / scale), min(1.0, (centre + half) / scale)


def estimate(strata: Iterable[Sequence[float | None]]) -> Estimate:
    """Estimates the unweighted mean over tasks of their mean scores, None counted as 0.

    A single task whose scores are all 0 or 1 gets Wilson's interval. Otherwise samples are redrawn within each task
    (stratified BCa bootstrap, Efron 1987). If a task has fewer than `FEW` samples, or each task's scores are all
    equal, Wilson's interval is used, with the effective number of samples 1 / sum of squared weights.

    Raises:
        ConfigError: there is no sample.
    """
    cells = [list(scores) for scores in strata if len(scores)]
    if not cells:
        raise ConfigError("the mean of no samples is undefined; leave empty cells out")
    arrays = [np.array([score or 0.0 for score in scores]) for scores in cells]
    scored = [[s for s in scores if s is not None] for scores in cells]
    mean, n = _mean(*arrays), sum(map(len, cells))
    binary = len(arrays) == 1 and bool(np.isin(arrays[0], (0.0, 1.0)).all())
    if binary or is_too_few(arrays):
        (low, high), method = wilson(mean, effective_samples(arrays)), "Wilson"
    else:
        (low, high), method = bootstrap_interval(arrays), "bootstrap"
    return Estimate(
        mean=mean,
        low=min(low, mean),
        high=max(high, mean),
        n=n,
        unscored=n - sum(map(len, scored)),
        scored_mean=_mean(*(np.array(cell) for cell in scored if cell)) if any(scored) else None,
        method=method,
    )


def _mean(*arrays: Array) -> float:
    return float(_means(*arrays))


def _means(*arrays: Array, axis: int = -1) -> Array:
    return np.mean([values.mean(axis=axis) for values in arrays], axis=0)


def effective_samples(arrays: Sequence[Array]) -> float:
    """Returns how many equally weighted samples have a mean that varies as much as the unweighted mean over strata."""
    return len(arrays) ** 2 / sum(1 / len(values) for values in arrays)


def is_too_few(arrays: Sequence[Array]) -> bool:
    """Returns whether a bootstrap of scores is too narrow, or has no width at all."""
    return min(map(len, arrays)) < FEW or all(values.min() == values.max() for values in arrays)


def bootstrap_interval(arrays: Sequence[Array]) -> tuple[float, float]:
    """Returns the BCa interval (Efron 1987) of the unweighted mean over non-empty strata, resampled within each."""
    stats: Any = import_module("scipy.stats")  # takes a second to load, and has no types
    # scipy rejects a sample of one value; the same value twice behaves like it.
    arrays = [values if len(values) > 1 else values.repeat(2) for values in arrays]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # If hardly any value differs from the others, there is no BCa interval, and scipy warns.
        warnings.simplefilter("ignore")
        result = stats.bootstrap(
            tuple(arrays),
            _means,
            n_resamples=RESAMPLES,
            batch=max(1, 2_000_000 // max(map(len, arrays))),
            method="BCa",
            rng=np.random.default_rng(SEED),
        )
    low, high = (float(end) for end in result.confidence_interval)
    if np.isfinite([low, high]).all():
        return low, high
    low, high = np.percentile(result.bootstrap_distribution, (2.5, 97.5))
    return float(low), float(high)
