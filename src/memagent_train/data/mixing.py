"""Decides how many samples an epoch has from each source, and in which order."""

import math
from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray

from memagent_bench.fitted import shuffle_range
from memagent_train.errors import DataError

Indexes = NDArray[np.int64]


def weights_of(
    names: Sequence[str], sizes: Sequence[int], given: Sequence[float | None]
) -> list[float]:
    """Returns the shares of S sources, which sum to 1: as given, or in proportion to their sizes.

    Raises:
        DataError: some have a weight and others do not.
    """
    without = [name for name, weight in zip(names, given, strict=True) if weight is None]
    if without and len(without) < len(names):
        raise DataError(
            f"the sources {without} have no weight, but others do: give all of them one, or none"
        )
    wanted = [
        float(size if weight is None else weight) for size, weight in zip(sizes, given, strict=True)
    ]
    return [weight / math.fsum(wanted) for weight in wanted]


def epoch_size(sizes: Sequence[int], weights: Sequence[float]) -> int:
    """Returns the most samples that respect the shares without repeating one; at least one from each source."""
    limit = min(size / weight for size, weight in zip(sizes, weights, strict=True))
    # Shares are quotients: 1000 / (1000 / 1100) may be slightly below 1100.
    return max(len(sizes), int(limit + 1e-6))


def counts_of(size: int, weights: Sequence[float]) -> list[int]:
    """Divides `size` samples among S sources: what rounding down loses goes to the largest remainders."""
    exact = [size * weight for weight in weights]
    counts = [int(share + 1e-9) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: size - sum(counts)]:
        counts[i] += 1
    return counts


def with_each(counts: Sequence[int]) -> list[int]:
    """Returns the counts with at least one per source, taken from the largest, as far as there are enough."""
    changed = list(counts)
    while 0 in changed and max(changed) > 1:
        changed[changed.index(max(changed))] -= 1
        changed[changed.index(0)] += 1
    return changed


def order_of(counts: Sequence[int], seed: int) -> tuple[Indexes, Indexes]:
    """Orders the samples of an epoch at random.

    Returns:
        `(N,)` and `(N,)`: each sample's source, and its number within the source.
    """
    in_turn = np.repeat(np.arange(len(counts)), counts)
    sources = in_turn[shuffle_range(len(in_turn), Random(f"{seed}:order"))]
    numbers = np.empty_like(sources)
    for source, count in enumerate(counts):
        numbers[sources == source] = np.arange(count)
    return sources, numbers
