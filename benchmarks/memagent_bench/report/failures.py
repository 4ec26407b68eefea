"""Samples without a score, and why."""

from __future__ import annotations

from dataclasses import dataclass

from memagent.terminal import shorten
from memagent_bench.record import Record
from memagent_bench.report.cells import Suite

SHOWN = 60
"""Maximum failures listed one by one; all of them are in results.jsonl."""
WIDTH = 200
"""Maximum characters of a failure's first line."""


@dataclass(frozen=True)
class Failure:
    """One sample without an answer."""

    label: str
    record: Record

    @property
    def why(self) -> str:
        """First line of the detail, shortened."""
        lines = self.record.detail.strip().splitlines()
        return shorten(lines[0], WIDTH) if lines else "no reason was recorded"


def failures(suite: Suite) -> list[Failure]:
    """Returns all failures, by label, task, length and index."""
    return [
        Failure(label, record)
        for (label, _, _), records in suite.cells.items()
        for record in records
        if record.score is None
    ]
