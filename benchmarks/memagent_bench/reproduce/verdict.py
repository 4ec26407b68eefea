"""Whether a measured mean and a published one agree, given how few samples both rest on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from memagent.tasks.statistics import Estimate, estimate, wilson
from memagent_bench.record import Record
from memagent_bench.reproduce.protocol import SYSTEM, Part
from memagent_bench.significance import Difference, unpaired_difference


class Agreement(StrEnum):
    """Agreement of a measured mean with a published one."""

    CONSISTENT = "consistent"
    """The 95% interval of the difference includes 0."""
    BELOW = "below"
    """The whole interval is below 0: the measured mean is lower than the published one."""
    ABOVE = "above"
    """The whole interval is above 0."""
    INCOMPLETE = "incomplete"
    """Some samples are still to be measured."""


@dataclass(frozen=True)
class Verdict:
    """One length of a published row."""

    suite: str
    length: int
    published: Estimate
    measured: Estimate | None
    """None if nothing was measured. Samples without an answer count as 0."""
    difference: Difference | None
    """Measured minus published."""
    agreement: Agreement


def verdicts(part: Part, records: Sequence[Record]) -> list[Verdict]:
    """Returns a verdict for each length of a row.

    Args:
        part: the row.
        records: the records of its suite.
    """
    return [_verdict(part, length, records) for length in part.lengths]


def _verdict(part: Part, length: int, records: Sequence[Record]) -> Verdict:
    tasks = part.table.tasks_at(length)
    mean, n = part.figure(length), part.table.samples * len(tasks)
    # The spread of the published scores is not known. That of any scores in [0, 1] is at most a proportion's, so
    # this interval is too wide rather than too narrow.
    low, high = wilson(mean, n)
    figure = Estimate(mean, low, high, n, unscored=0, scored_mean=mean, method="Wilson")
    strata = [_scores(part, length, task, records) for task in tasks]
    if not any(strata):
        return Verdict(part.suite, length, figure, None, None, Agreement.INCOMPLETE)
    measured = estimate(strata)
    difference = unpaired_difference(measured, figure)
    agreement = Agreement.CONSISTENT
    if any(len(scores) < part.table.samples for scores in strata):
        agreement = Agreement.INCOMPLETE
    elif difference.high < 0:
        agreement = Agreement.BELOW
    elif difference.low > 0:
        agreement = Agreement.ABOVE
    return Verdict(part.suite, length, figure, measured, difference, agreement)


def _scores(part: Part, length: int, task: str, records: Sequence[Record]) -> list[float | None]:
    """Returns scores by the published metric; None without an answer."""
    scores: list[float | None] = []
    for record in records:
        if (record.system, record.task, record.length) != (SYSTEM, task, length):
            continue
        metric = part.table.metric_of(record.scorer, record.scores)
        scores.append(None if metric is None else record.scores.get(metric))
    return scores
