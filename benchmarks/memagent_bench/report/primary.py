"""The comparisons named before the results were seen, tested as one family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memagent.errors import ConfigError
from memagent.texts import show_length
from memagent_bench.lengths import parse_length
from memagent_bench.report.cells import Suite
from memagent_bench.report.compare import Contrast, contrast
from memagent_bench.significance import PValue, holm, sign_flip_test

MEAN = "mean"
"""Name of a cell over all tasks."""


@dataclass(frozen=True)
class Hypothesis:
    """One hypothesis of the family: in this cell the system scores like the baseline."""

    suite: str
    cell: str
    """As named: `niah_single_1@128K`, `mean@1M`."""
    label: str
    baseline: str
    contrast: Contrast | None
    """None if one of the two has no records in the cell."""
    p: PValue | None
    """None if the two didn't get the same samples."""
    adjusted: float | None
    """Holm's p-value over the family."""


def default_cells(suite: Suite, baseline: str) -> list[str]:
    """Returns the default cells: the mean over tasks at the longest length that the baseline shares with another."""
    shared = [
        length
        for length in suite.lengths
        if any(
            suite.shared_tasks((baseline, length), (x, length))
            for x in suite.labels
            if x != baseline
        )
    ]
    return [f"{MEAN}@{show_length(shared[-1])}"] if shared else []


def primary_tests(
    suites: Sequence[Suite], baselines: Mapping[str, str], cells: Sequence[str], margin: float
) -> list[Hypothesis]:
    """Tests each named cell for each system against the baseline of its suite.

    Args:
        suites: with records.
        baselines: label by suite; suites without one have nothing to compare.
        cells: `TASK@LENGTH` or `mean@LENGTH`, one named twice counts once; none: see `default_cells`.
        margin: as a fraction.

    Raises:
        ConfigError: a cell is not in the records.
    """
    _check(suites, cells)
    tests: list[tuple[str, str, str, Contrast | None, PValue | None]] = []
    for suite in suites:
        baseline = baselines.get(suite.name)
        if baseline is None:
            continue
        for task, length in dict.fromkeys(map(_parse, cells or default_cells(suite, baseline))):
            if not _is_in(suite, task, length):
                continue
            name = f"{task or MEAN}@{show_length(length)}"
            for label in (label for label in suite.labels if label != baseline):
                comparison = contrast(suite, label, baseline, length, margin, task)
                p = (
                    None
                    if comparison is None or comparison.pairs is None
                    else sign_flip_test(comparison.pairs)
                )
                tests.append((suite.name, name, label, comparison, p))
    adjusted = iter(holm([p.p for *_, p in tests if p is not None]))
    return [
        Hypothesis(
            suite,
            name,
            label,
            baselines[suite],
            comparison,
            p,
            None if p is None else next(adjusted),
        )
        for suite, name, label, comparison, p in tests
    ]


def _is_in(suite: Suite, task: str | None, length: int) -> bool:
    return length in suite.lengths and (task is None or task in suite.tasks)


def _check(suites: Sequence[Suite], cells: Sequence[str]) -> None:
    for cell in cells:
        if not any(_is_in(suite, *_parse(cell)) for suite in suites):
            tasks = ", ".join(dict.fromkeys(t for suite in suites for t in suite.tasks))
            lengths = sorted({length for suite in suites for length in suite.lengths})
            raise ConfigError(
                f"primary cell {cell!r} is not in the records; the tasks are {MEAN}, {tasks} and the lengths "
                f"{', '.join(map(show_length, lengths))}"
            )


def _parse(cell: str) -> tuple[str | None, int]:
    task, at, length = cell.rpartition("@")
    if not at or not task:
        raise ConfigError(f"primary cell {cell!r}: write TASK@LENGTH, such as vt@128k or {MEAN}@1m")
    return None if task == MEAN else task, parse_length(length)
