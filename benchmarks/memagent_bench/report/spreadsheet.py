"""The scores and costs of every cell as comma-separated values."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterator, Sequence

from memagent.messages import Usage
from memagent.tasks.statistics import Estimate, estimate
from memagent_bench.record import Record
from memagent_bench.report.cells import Suite
from memagent_bench.report.compare import scores
from memagent_bench.report.view import View

HEAD = (
    *("suite", "system", "task", "length", "samples", "unscored", "score", "low", "high"),
    *("calls", "prompt_tokens", "completion_tokens", "seconds"),
)
"""Scores and their 95% bounds are fractions; calls, tokens and seconds are means per sample.
Seconds exclude resumed samples, and are empty if all were resumed."""
MEAN = "(mean)"
"""The row for all tasks of a length, with equal weights."""


def spreadsheet(views: Sequence[View]) -> bytes:
    """Returns a row for each system, length and task, and one for the mean if there are several tasks."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEAD)
    for view in views:
        writer.writerows(_rows(view.suite))
    return text.getvalue().encode("utf-8", "replace")


def _rows(suite: Suite) -> Iterator[tuple[object, ...]]:
    for label in suite.labels:
        for length in suite.lengths_of(label):
            tasks = suite.tasks_of(label, length)
            for name, of in [(task, [task]) for task in tasks] + [(MEAN, [*tasks])]:
                if name != MEAN or len(tasks) > 1:
                    strata = suite.strata(label, length, of)
                    records = [record for stratum in strata for record in stratum]
                    yield (
                        *(suite.name, label, name, length),
                        *_score(estimate(scores(strata))),
                        *_costs(records),
                    )


def _score(of: Estimate) -> tuple[object, ...]:
    return of.n, of.unscored, *(f"{value:.6g}" for value in (of.mean, of.low, of.high))


def _costs(records: Sequence[Record]) -> list[str]:
    usage = sum((record.usage for record in records), Usage())
    sums = (usage.calls, usage.prompt_tokens, usage.completion_tokens)
    timed = [record.seconds for record in records if not record.resumed]
    return [
        *(f"{amount / len(records):.6g}" for amount in sums),
        f"{statistics.mean(timed):.6g}" if timed else "",
    ]
