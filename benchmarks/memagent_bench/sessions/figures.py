"""Aggregates records: a cell for each difficulty and way to play."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from statistics import median
from typing import Any

from memagent.tasks.statistics import Estimate, estimate
from memagent.terminal import amount
from memagent_bench.sessions.arms import Arm
from memagent_bench.sessions.record import SessionRecord
from memagent_bench.systems.base import Status
from memagent_bench.table import align

HEAD = ("", "success (95%)", "no answer", "steps", "prompt tokens", "largest", "summaries")
LEGEND = "W: working context; S: most summaries; K: outputs kept. Success: mean of games, no answer is 0; else medians"
SPREAD = " (smallest to largest)"


@dataclass(frozen=True)
class Middle:
    """A median with its range."""

    median: float
    low: float
    """The smallest value."""
    high: float

    def words(self, *, spread: bool) -> str:
        """Formats the median, with the range if `spread`."""
        if not spread or self.low == self.high:
            return amount(self.median)
        return f"{amount(self.median)} ({amount(self.low)} to {amount(self.high)})"


@dataclass(frozen=True)
class Cell:
    """All sessions of one difficulty played in one way."""

    difficulty: int
    arm: Arm
    success: Estimate
    """Mean over games of the share solved; sessions without an answer count as 0."""
    steps: Middle
    prompt_tokens: Middle
    """Of all calls of a session. A session that ended early paid until then."""
    largest_prompt: int
    """Largest prompt of all sessions."""
    summaries: Middle
    reasons: dict[str, int]
    """Reasons for missing answers, with their counts."""

    def row(self, *, spread: bool) -> tuple[str, ...]:
        """Returns the columns of `HEAD`, with or without the range beside the medians."""
        mean = self.success
        return (
            self.arm.label,
            f"{mean.mean:.2f} ({mean.low:.2f} to {mean.high:.2f})",
            f"{mean.unscored} of {mean.n}",
            self.steps.words(spread=spread),
            self.prompt_tokens.words(spread=spread),
            f"{self.largest_prompt:,}",
            self.summaries.words(spread=spread),
        )

    def as_data(self) -> dict[str, Any]:
        """Returns the cell for JSON."""
        return asdict(self) | {"arm": self.arm.model_dump(mode="json"), "label": self.arm.label}


def cells(records: Sequence[SessionRecord]) -> list[Cell]:
    """Returns the cells by difficulty, then in the order in which ways first came."""
    groups: dict[tuple[int, Arm], list[SessionRecord]] = defaultdict(list)
    order = {arm: n for n, arm in enumerate(dict.fromkeys(record.arm for record in records))}
    for record in records:
        groups[record.difficulty, record.arm].append(record)
    keys = sorted(groups, key=lambda key: (key[0], order[key[1]]))
    return [_cell(*key, groups[key]) for key in keys]


def lines(found: Sequence[Cell], *, spread: bool = True) -> list[str]:
    """Returns the table's lines, a block per difficulty; empty if there are no cells.

    Args:
        found: the cells to show.
        spread: False leaves out smallest and largest, for narrow terminals.
    """
    blocks: dict[int, list[tuple[str, ...]]] = {}
    for cell in found:
        head = (f"{cell.difficulty:,} steps", *HEAD[1:])
        blocks.setdefault(cell.difficulty, [head]).append(cell.row(spread=spread))
    table = pad(blocks.values())
    return [*table, LEGEND + (SPREAD if spread else "")] if table else []


def pad(blocks: Collection[Sequence[Sequence[str]]]) -> list[str]:
    """Formats blocks of rows as lines with aligned columns, and an empty line after each block."""
    aligned = iter(align([row for block in blocks for row in block]))
    return [line for block in blocks for line in (*islice(aligned, len(block)), "")]


def _cell(difficulty: int, arm: Arm, records: Sequence[SessionRecord]) -> Cell:
    by_game: dict[str, list[float | None]] = defaultdict(list)
    for record in records:
        by_game[record.game].append(record.score)
    return Cell(
        difficulty=difficulty,
        arm=arm,
        success=estimate(by_game.values()),
        steps=_middle([record.steps for record in records]),
        prompt_tokens=_middle([record.usage.prompt_tokens for record in records]),
        largest_prompt=max(record.largest_prompt for record in records),
        summaries=_middle([record.summaries for record in records]),
        reasons=dict(Counter(r.reason.value for r in records if r.status is not Status.ANSWERED)),
    )


def _middle(amounts: Sequence[float]) -> Middle:
    return Middle(median(amounts), min(amounts), max(amounts))
