"""RULER's own summary of a system: effective length and averages over lengths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from memagent_bench.published import EFFECTIVE, RULER_TASKS
from memagent_bench.report.cells import Suite
from memagent_bench.report.compare import Mean


@dataclass(frozen=True)
class Summary:
    """RULER's summary of one system."""

    label: str
    tasks: int
    """Number of RULER's 13 tasks run at each of its lengths."""
    published: bool
    """Whether the system sends RULER's own prompt: the threshold is meaningless otherwise."""
    effective: int | None
    """Longest length that reaches the threshold; None if none does."""
    below: tuple[int, ...]
    """Shorter lengths that don't reach it."""
    average: float
    increasing: float
    """Average with weights 1, 2, 3, ... from the shortest to the longest length."""
    decreasing: float
    lengths: int
    complete: bool
    """Whether exactly the 13 tasks were run at every length: only then is it RULER's summary."""

    @property
    def has_effective_length(self) -> bool:
        """Whether `effective` is meaningful."""
        return self.published and self.complete


def summaries(suite: Suite, means: Mapping[tuple[str, int], Mean]) -> list[Summary]:
    """Returns summaries by label; empty for other suites."""
    if suite.name != "ruler":
        return []
    results: list[Summary] = []
    for label in suite.labels:
        label_means = {length: means[label, length] for length in suite.lengths_of(label)}
        scores = {length: mean.estimate.mean for length, mean in label_means.items()}
        effective = max((length for length in scores if scores[length] >= EFFECTIVE), default=None)
        results.append(
            Summary(
                label=label,
                tasks=min(len(set(mean.tasks) & set(RULER_TASKS)) for mean in label_means.values()),
                published=suite.is_published(label),
                effective=effective,
                below=tuple(
                    length
                    for length, score in scores.items()
                    if effective is not None and length < effective and score < EFFECTIVE
                ),
                average=sum(scores.values()) / len(scores),
                increasing=_weighted_average(scores, increasing=True),
                decreasing=_weighted_average(scores, increasing=False),
                lengths=len(scores),
                complete=all(set(mean.tasks) == set(RULER_TASKS) for mean in label_means.values()),
            )
        )
    return results


def _weighted_average(scores: Mapping[int, float], *, increasing: bool) -> float:
    """Computes RULER's average: the k lengths weigh 1..k, the longest most if `increasing`, else the shortest."""
    values = [scores[length] for length in sorted(scores, reverse=not increasing)]
    return float(np.average(values, weights=range(1, len(values) + 1)))
