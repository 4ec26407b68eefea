"""Scores of cells, and differences between two of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memagent.tasks.statistics import Estimate, estimate
from memagent_bench.record import Record
from memagent_bench.report.cells import Suite
from memagent_bench.significance import (
    Difference,
    Verdict,
    non_inferiority,
    paired_difference,
    unpaired_difference,
)


@dataclass(frozen=True)
class Mean:
    """A system's mean over tasks at one length."""

    tasks: tuple[str, ...]
    estimate: Estimate


@dataclass(frozen=True)
class Contrast:
    """One cell minus another: a longer length minus the shortest, or a system minus the baseline."""

    label: str
    """Label of the system whose score comes first."""
    length: int
    start: int
    """Length of the subtracted cell."""
    tasks: tuple[str, ...]
    """Tasks that both cells have."""
    old: float
    """Subtracted score, a mean over the samples compared."""
    difference: Difference
    verdict: Verdict
    pairs: tuple[tuple[float, ...], ...] | None
    """Differences of the same samples, by task; None if the samples differ."""

    @property
    def relative(self) -> float | None:
        """Difference relative to the subtracted score; None if that is 0."""
        return self.difference.mean / self.old if self.old else None


def find_contrast(found: Sequence[Contrast], label: str, length: int) -> Contrast | None:
    """Returns the contrast of a system at a length."""
    return next(
        (
            candidate
            for candidate in found
            if (candidate.label, candidate.length) == (label, length)
        ),
        None,
    )


def scores(strata: Sequence[Sequence[Record]]) -> list[list[float | None]]:
    """Returns headline scores by task; None for a sample without one."""
    return [[record.score for record in records] for records in strata]


def means(suite: Suite) -> dict[tuple[str, int], Mean]:
    """Returns the means over tasks, by label and length; cells that weren't run are missing."""
    return {
        (label, length): Mean(
            suite.tasks_of(label, length), estimate(scores(suite.strata(label, length)))
        )
        for label in suite.labels
        for length in suite.lengths_of(label)
    }


def losses(suite: Suite, margin: float) -> list[Contrast]:
    """Compares each system's longer lengths with its shortest one, over the tasks that both have."""
    contrasts: list[Contrast] = []
    for label in suite.labels:
        start, *longer = suite.lengths_of(label)
        for length in longer:
            tasks = suite.shared_tasks((label, length), (label, start))
            if tasks:
                contrasts.append(_contrast(suite, (label, length), (label, start), tasks, margin))
    return contrasts


def contrast(
    suite: Suite, label: str, baseline: str, length: int, margin: float, task: str | None = None
) -> Contrast | None:
    """Returns a system minus the baseline at one length, over the shared tasks or one; None without shared tasks."""
    tasks = suite.shared_tasks((label, length), (baseline, length))
    tasks = tasks if task is None else tuple(t for t in tasks if t == task)
    return _contrast(suite, (label, length), (baseline, length), tasks, margin) if tasks else None


def _contrast(
    suite: Suite, new: tuple[str, int], old: tuple[str, int], tasks: tuple[str, ...], margin: float
) -> Contrast:
    a, b = suite.strata(*new, tasks), suite.strata(*old, tasks)
    same = _same_document if new[1] == old[1] else _same_question
    pairs = [_pairs(x, y, same) for x, y in zip(a, b, strict=True)]
    strata = None
    if all(pairs):
        strata = tuple(tuple(_score(x) - _score(y) for x, y in of) for of in pairs)
        difference = paired_difference(strata)
        old_mean = sum(sum(_score(y) for _, y in of) / len(of) for of in pairs) / len(pairs)
    else:
        older = estimate(scores(b))
        difference = unpaired_difference(estimate(scores(a)), older)
        old_mean = older.mean
    return Contrast(
        label=new[0],
        length=new[1],
        start=old[1],
        tasks=tasks,
        old=old_mean,
        difference=difference,
        verdict=non_inferiority(difference, margin),
        pairs=strata,
    )


def _pairs(
    a: Sequence[Record], b: Sequence[Record], same: Callable[[Record, Record], bool]
) -> list[tuple[Record, Record]]:
    """Pairs records of the same index; empty if any pair isn't comparable."""
    others = {record.index: record for record in b}
    pairs = [(record, others[record.index]) for record in a if record.index in others]
    return pairs if all(same(x, y) for x, y in pairs) else []


def _same_document(a: Record, b: Record) -> bool:
    return a.document == b.document and _same_question(a, b)


def _same_question(a: Record, b: Record) -> bool:
    """Returns whether a longer sample is the shorter one with more text: same question, same answer."""
    return a.question == b.question and a.outputs == b.outputs


def _score(record: Record) -> float:
    return record.score or 0.0
