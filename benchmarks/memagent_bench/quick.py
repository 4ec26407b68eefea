"""What a memory is worth with a particular model and server: scores, speed and a verdict from records."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import TypeAlias

from memagent.messages import Usage
from memagent.models.limit import Limits
from memagent.tasks.statistics import Estimate, estimate
from memagent.texts import show_length
from memagent_bench.record import Record
from memagent_bench.report.words import join_words
from memagent_bench.significance import paired_difference
from memagent_bench.systems.base import Status

MEMORY = ("memory", "memory-gate")
OTHERS = ("direct", "bm25-model")
SYSTEMS = (*MEMORY, *OTHERS)
TASKS = {"ruler": "niah_single_2", "qa": "squad"}
"""Suite -> task: a needle in a book, and a question about one paragraph among many."""
PER = 100_000
"""Tokens of documents for which times and costs are reported."""

Scores: TypeAlias = Mapping[tuple[str, int], float]
"""Scores by task and index."""


@dataclass(frozen=True)
class Row:
    """One system at one length, over both tasks."""

    system: str
    length: int
    score: Estimate
    tasks: dict[str, Estimate]
    """Estimates of the single tasks."""
    shown: float | None
    """Mean share of the document that the model saw, over answered samples; None if there are none."""
    prompt_tokens: float
    """Prompt tokens per `PER` tokens of documents."""
    completion_tokens: float
    seconds: float | None
    """Median wall seconds per `PER` tokens; samples may run concurrently. Excludes resumed samples, whose first part
        isn't timed; None if all were resumed."""
    cost: float | None
    """Cost per `PER` tokens, if prices are known."""


def keep_comparable(records: Sequence[Record]) -> list[Record]:
    """Returns the records of samples that every system has: an interrupted round leaves others."""
    systems: dict[tuple[str, int, int], set[str]] = defaultdict(set)
    for record in records:
        systems[record.task, record.length, record.index].add(record.system)
    return [r for r in records if len(systems[r.task, r.length, r.index]) == len(SYSTEMS)]


def tokens_per_second(records: Sequence[Record]) -> float:
    """Returns prompt and completion tokens per second of the time in which at least one sample ran, without resumed
    samples."""
    records = [record for record in records if not record.resumed]
    busy = until = 0.0
    for begun, seconds in sorted(
        (datetime.fromisoformat(r.started).timestamp(), r.seconds) for r in records
    ):
        busy += max(0.0, begun + seconds - max(begun, until))
        until = max(until, begun + seconds)
    tokens = sum(r.usage.prompt_tokens + r.usage.completion_tokens for r in records)
    return tokens / busy if busy else 0.0


def rows(records: Sequence[Record], limits: Limits | None = None) -> list[Row]:
    """Returns scores and costs of each system at each length, in the order of the systems.

    Args:
        records: the last one of each sample under each system.
        limits: the prices, if any.
    """
    cells: dict[tuple[int, str], list[Record]] = defaultdict(list)
    for record in records:
        cells[record.length, record.system].append(record)
    lengths = sorted({length for length, _ in cells})
    places = [(length, system) for length in lengths for system in SYSTEMS]
    return [_row(cells[place], limits) for place in places if place in cells]


def _row(records: Sequence[Record], limits: Limits | None) -> Row:
    by_task: dict[str, list[float | None]] = defaultdict(list)
    for record in records:
        by_task[record.task].append(record.score)
    share = PER / sum(record.tokens for record in records)
    shares = [record.shown for record in records if record.status is Status.ANSWERED]
    seconds = [PER * record.seconds / record.tokens for record in records if not record.resumed]
    usage = sum((record.usage for record in records), Usage())
    price = None if limits is None else limits.price(usage)
    return Row(
        system=records[0].system,
        length=records[0].length,
        score=estimate(by_task.values()),
        tasks={task: estimate([scores]) for task, scores in by_task.items()},
        shown=statistics.mean(shares) if shares else None,
        prompt_tokens=usage.prompt_tokens * share,
        completion_tokens=usage.completion_tokens * share,
        seconds=statistics.median(seconds) if seconds else None,
        cost=None if price is None else price * share,
    )


def verdict(records: Sequence[Record]) -> str:
    """Returns one sentence: the length from which a memory pays off, or what to use instead.

    A memory pays off at a length if the better of the two beats all others there: the 95% interval of the
    paired difference is above 0. A sample without an answer could have any score: no verdict rests on it.
    """
    silent = sorted({record.system for record in records if record.score is None})
    sentences = {
        _judge(records, dict(zip(silent, scores, strict=True)))
        for scores in product((0.0, 1.0), repeat=len(silent))
    }
    if len(sentences) == 1:
        return sentences.pop()
    asked = Counter((record.length, record.system) for record in records)
    missing = Counter((r.length, r.system) for r in records if r.score is None)
    gaps: dict[int, list[str]] = defaultdict(list)
    for length, name in sorted(missing, key=lambda cell: (-cell[0], SYSTEMS.index(cell[1]))):
        count = f"{missing[length, name]} of {asked[length, name]}"
        gaps[length].append(f"{count} samples of {name}")
    places = (f"at {show_length(length)}, {join_words(names)}" for length, names in gaps.items())
    return f"undecided: {'; '.join(places)} got no answer; repeat the command to try again"


def _judge(records: Sequence[Record], unanswered: Mapping[str, float]) -> str:
    """Returns the verdict if all samples of a system that got no answer had the score of `unanswered`."""
    cells: dict[tuple[int, str], dict[tuple[str, int], float]] = defaultdict(dict)
    for record in records:
        score = unanswered[record.system] if record.score is None else record.score
        cells[record.length, record.system][record.task, record.index] = score
    lengths = sorted({length for length, _ in cells})
    if not lengths:
        return "none yet: no sample has replies from all systems"
    better: list[int] = []
    for length in lengths:
        mine = max((cells[length, name] for name in MEMORY), key=_mean)
        if all(_difference(mine, cells[length, name])[0] > 0 for name in OTHERS):
            better.append(length)
    if better and better == [length for length in lengths if length >= better[0]]:
        short_lengths = [length for length in lengths if length < better[0]]
        if not short_lengths:
            return f"memory pays off from {show_length(better[0])} tokens, the shortest length measured"
        return f"memory pays off beyond {show_length(short_lengths[-1])} tokens"
    at = {name: cells[lengths[-1], name] for name in SYSTEMS}
    means = {name: _mean(scores) for name, scores in at.items()}
    best, memory = max(OTHERS, key=means.__getitem__), max(MEMORY, key=means.__getitem__)
    where, samples = show_length(lengths[-1]), len(at[best])
    if not any(means.values()):
        return (
            f"none: no system got any answer right with this model at {where} ({samples} samples)"
        )
    if any(_difference(at[memory], at[name])[1] < 0 for name in OTHERS):
        return f"use {best}: at {where} it beats both memories"
    if (lead := means[memory] - means[best]) > 0:
        return (
            f"undecided: at {where} {memory} is ahead of {best} by {lead:.2f}, which may be chance with {samples} "
            f"samples; repeat the command to add more"
        )
    return f"use {best}: {samples} samples at {where} show no advantage of a memory, and it makes fewer calls"


def _mean(scores: Scores) -> float:
    return statistics.mean(scores.values()) if scores else -1.0


def _difference(mine: Scores, other: Scores) -> tuple[float, float]:
    """Returns the interval of the mean difference over shared samples; -1 to 1 if there are none."""
    strata: dict[str, list[float]] = defaultdict(list)
    # Sorted: the order of a set differs between processes, and with it the last digits of a sum.
    for key in sorted(mine.keys() & other.keys()):
        strata[key[0]].append(mine[key] - other[key])
    if not strata:
        return -1.0, 1.0
    interval = paired_difference(strata.values())
    return interval.low, interval.high
