"""Samples without a score: how many, and why."""

from __future__ import annotations

from dataclasses import dataclass

from memagent.tasks.statistics import Estimate
from memagent.terminal import shorten
from memagent_bench.record import Record
from memagent_bench.report.cells import Suite
from memagent_bench.systems.base import Status

SHOWN = 60
"""Failures listed one by one; all of them are in results.jsonl."""
WIDTH = 200
"""Characters of a failure's first line."""


@dataclass(frozen=True)
class Missing:
    """Of a system at one length where any sample has no score."""

    label: str
    length: int
    n: int
    stopped: int
    failed: int
    mean: float
    """With the missing ones as 0."""
    scored_mean: float | None
    """Without them."""


@dataclass(frozen=True)
class Failure:
    """One sample without an answer."""

    label: str
    record: Record

    @property
    def why(self) -> str:
        """First line of the detail, cut."""
        lines = self.record.detail.strip().splitlines()
        return shorten(lines[0], WIDTH) if lines else "no reason was recorded"


def list_missing(suite: Suite, means: dict[tuple[str, int], Estimate]) -> list[Missing]:
    """By label and length, where there are any."""
    found: list[Missing] = []
    for (label, length), estimate in means.items():
        if estimate.unscored:
            records = [r for part in suite.strata(label, length) for r in part]
            stopped = sum(r.score is None and r.status is Status.STOPPED for r in records)
            found.append(
                Missing(
                    label=label,
                    length=length,
                    n=estimate.n,
                    stopped=stopped,
                    failed=estimate.unscored - stopped,
                    mean=estimate.mean,
                    scored_mean=estimate.scored_mean,
                )
            )
    return found


def failures(suite: Suite) -> list[Failure]:
    """All, by label, task, length and index."""
    return [
        Failure(label, record)
        for (label, _, _), records in suite.cells.items()
        for record in records
        if record.score is None
    ]
