"""What samples cost: calls, tokens and seconds by system and length, and whether they grow as predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from memagent.tasks.statistics import bootstrap_interval
from memagent_bench.record import Record
from memagent_bench.report.cells import Suite
from memagent_bench.report.charts import Point
from memagent_bench.report.fits import Line, Ratio, against_prediction, straight_line
from memagent_bench.systems.base import Status


@dataclass(frozen=True)
class Cost:
    """Cost of the answered samples of a system at one length; the others stopped midway."""

    label: str
    length: int
    answered: int
    calls: Point
    """Mean over tasks, as in the fields below."""
    tokens: Point
    """Prompt plus completion tokens."""
    completion: Point
    seconds: Point | None
    """Without resumed samples, whose first part isn't timed; None if all were."""
    predicted_calls: float | None
    """Mean; None if the system makes no prediction."""
    predicted_tokens: float | None
    """Mean of the upper bounds."""
    retries: int
    """Calls without a usable result, of all samples."""
    shown: float
    """Mean share of the document that the model saw."""


@dataclass(frozen=True)
class Growth:
    """How a system's cost grows, over all its answered samples."""

    label: str
    calls: Ratio | None
    """None if the system makes no prediction."""
    tokens: Ratio | None
    """Ratio to the upper bound: below 1 if samples take less."""
    seconds: Line | None
    """Line over tokens of the document."""


def costs(suite: Suite) -> list[Cost]:
    """Computes costs by label and length, for cells with an answered sample."""
    cell_costs = [
        _cost(suite, label, length) for label in suite.labels for length in suite.lengths_of(label)
    ]
    return [cost for cost in cell_costs if cost is not None]


def growth(suite: Suite) -> list[Growth]:
    """Computes growth by label, for systems with an answered sample."""
    rows: list[Growth] = []
    for label in suite.labels:
        records = _keep_answered(suite.of(label))
        if records:
            rows.append(_growth(label, records))
    return rows


def _growth(label: str, records: list[Record]) -> Growth:
    # Filtered only once: a system that predicts does so for every sample.
    calls = [(r.predicted_calls, r.usage.calls) for r in records if r.predicted_calls is not None]
    tokens = [(r.predicted_tokens, tokens_of(r)) for r in records if r.predicted_tokens is not None]
    timed = [r for r in records if not r.resumed]
    return Growth(
        label=label,
        calls=against_prediction([p for p, _ in calls], [m for _, m in calls]),
        tokens=against_prediction([p for p, _ in tokens], [m for _, m in tokens]),
        seconds=straight_line([r.tokens for r in timed], [r.seconds for r in timed]),
    )


def tokens_of(record: Record) -> int:
    """Returns prompt and completion tokens of the calls that were used."""
    return record.usage.prompt_tokens + record.usage.completion_tokens


def _cost(suite: Suite, label: str, length: int) -> Cost | None:
    every = suite.strata(label, length)
    strata = [answered for records in every if (answered := _keep_answered(records))]
    if not strata:
        return None
    timed = [part for records in strata if (part := [r for r in records if not r.resumed])]
    return Cost(
        label=label,
        length=length,
        answered=sum(map(len, strata)),
        calls=_amount(strata, lambda r: r.usage.calls),
        tokens=_amount(strata, tokens_of),
        completion=_amount(strata, lambda r: r.usage.completion_tokens),
        seconds=_amount(timed, lambda r: r.seconds) if timed else None,
        predicted_calls=_mean_prediction(strata, lambda r: r.predicted_calls),
        predicted_tokens=_mean_prediction(strata, lambda r: r.predicted_tokens),
        retries=sum(r.usage.retries for records in every for r in records),
        shown=_amount(strata, lambda r: r.shown).mean,
    )


def _keep_answered(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.status is Status.ANSWERED]


def _amount(strata: Sequence[Sequence[Record]], of: Callable[[Record], float]) -> Point:
    """Returns the unweighted mean over tasks with a bootstrap interval; zero width if each task's amounts are equal."""
    arrays = [np.array([of(record) for record in records], dtype=float) for records in strata]
    low = high = mean = float(np.mean([values.mean() for values in arrays]))
    if any(values.min() < values.max() for values in arrays):
        low, high = bootstrap_interval(arrays)
    return Point(mean, min(low, mean), max(high, mean))


def _mean_prediction(
    strata: Sequence[Sequence[Record]], of: Callable[[Record], int | None]
) -> float | None:
    predictions = [[p for r in records if (p := of(r)) is not None] for records in strata]
    values = [sum(part) / len(part) for part in predictions if part]
    return sum(values) / len(values) if values else None
