"""Published figures, shown with measured ones if tasks and metric are the same; never data of a run."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

_FILE: dict[str, Any] = tomllib.loads(
    (resources.files("memagent_bench") / "published.toml").read_text(encoding="utf-8")
)

RULER_TASKS: tuple[str, ...] = tuple(_FILE["ruler"]["tasks"])
"""RULER's 13 tasks in its order."""
EFFECTIVE: float = _FILE["ruler"]["threshold"] / 100
"""Mean score above which RULER calls a length effective: Llama-2-7B-chat's at 4K (arXiv 2404.06654)."""
ONE_SHOT = "published"
"""The system that asks as RULER does: only its means are compared with `EFFECTIVE`."""


@dataclass(frozen=True)
class Published:
    """One published table."""

    title: str
    suite: str
    tasks: tuple[str, ...]
    until: Mapping[str, int]
    """Longest length of tasks that end before the others."""
    metrics: tuple[str, ...]
    """Names of the scorers that measure the same as the figures."""
    samples: int
    """Number of samples per task and length."""
    source: str
    """Paper, number, version."""
    caveat: str
    """What a reader must know before comparing."""
    scores: Mapping[str, Mapping[int, float]]
    """System -> length in tokens -> mean score in [0, 1]."""
    read_off: Mapping[str, tuple[int, ...]]
    """System -> lengths whose figures were read off a plot."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """All lengths, ascending."""
        return tuple(sorted({length for scores in self.scores.values() for length in scores}))

    def tasks_at(self, length: int) -> tuple[str, ...]:
        """Returns the tasks whose mean is comparable with the figures at this length."""
        return tuple(t for t in self.tasks if length <= self.until.get(t, length))

    def metric_of(self, scorer: str, scores: Iterable[str]) -> str | None:
        """Returns the name of the record's score that is measured as the figures are; None if none is.

        Args:
            scorer: name of the headline score.
            scores: names of the further ones.
        """
        return next((name for name in (scorer, *scores) if name in self.metrics), None)


def list_published(suite: str) -> list[Published]:
    """Returns the published tables of a suite; empty if nothing comparable is published."""
    return [_table(table) for table in _FILE["table"] if table["suite"] == suite]


def _table(table: dict[str, Any]) -> Published:
    # Some rows end before the longest length.
    scores = {
        system: {length: s / 100 for length, s in zip(table["lengths"], row, strict=False)}
        for system, row in table["scores"].items()
    }
    return Published(
        title=table["title"],
        suite=table["suite"],
        tasks=tuple(table["tasks"]),
        until=table.get("until", {}),
        metrics=tuple(table["metrics"]),
        samples=table["samples"],
        source=table["source"],
        caveat=table["caveat"],
        scores=scores,
        read_off={system: tuple(at) for system, at in table.get("read_off", {}).items()},
    )
