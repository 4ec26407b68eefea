"""Published figures beside measured ones, if tasks and metric are the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memagent.tasks.statistics import Estimate, estimate
from memagent_bench.published import Published, list_published
from memagent_bench.record import Record
from memagent_bench.report.cells import Suite
from memagent_bench.report.charts import Chart, Point, Series
from memagent_bench.report.theme import Mark, mark


@dataclass(frozen=True)
class Overlay:
    """One published table, and the comparable measurements."""

    table: Published
    measured: Mapping[str, Mapping[int, Estimate]]
    """Means over the table's tasks by the table's metric, by label and length."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of both, ascending."""
        lengths = {length for means in self.measured.values() for length in means}
        return tuple(sorted(lengths | set(self.table.lengths)))


def overlays(suite: Suite) -> list[Overlay]:
    """Returns the published tables that compare with any cell of the published system."""
    results: list[Overlay] = []
    for table in list_published(suite.name):
        labels = [label for label in suite.labels if suite.is_published(label)]
        measured = {label: _measure(suite, label, table) for label in labels}
        measured = {label: means for label, means in measured.items() if means}
        if measured:
            results.append(Overlay(table, measured))
    return results


def overlay_chart(name: str, overlay: Overlay, marks: Mapping[str, Mark]) -> Chart:
    """Returns a chart with measured lines as everywhere, and published ones thin, dashed and labelled as such."""
    lines = [Series(label, marks[label], means) for label, means in overlay.measured.items()]
    lines += [
        Series(
            f"published: {system}",
            mark(i),
            {n: Point(score, score, score) for n, score in scores.items()},
            published=True,
        )
        for i, (system, scores) in enumerate(overlay.table.scores.items())
    ]
    return Chart(
        name=name,
        title=f"Measured and published: {overlay.table.title}",
        axis="score in points",
        series=lines,
        note=f"Published: {overlay.table.source}. {overlay.table.caveat}",
        scores=True,
    )


def _measure(suite: Suite, label: str, table: Published) -> dict[int, Estimate]:
    estimates: dict[int, Estimate] = {}
    for length in suite.lengths_of(label):
        tasks = table.tasks_at(length)
        if not set(tasks) <= set(suite.tasks_of(label, length)):
            continue
        scores = _scores(suite.strata(label, length, tasks), table)
        if scores is not None:
            estimates[length] = estimate(scores)
    return estimates


def _scores(
    strata: Sequence[Sequence[Record]], table: Published
) -> list[list[float | None]] | None:
    """Returns scores by the table's metric; None if an answer wasn't scored by it."""
    scores: list[list[float | None]] = []
    for records in strata:
        names = [table.metric_of(r.scorer, r.scores) for r in records]
        if any(
            name is None and r.score is not None for name, r in zip(names, records, strict=True)
        ):
            return None
        scores.append(
            [
                None if name is None else r.score if name == r.scorer else r.scores[name]
                for name, r in zip(names, records, strict=True)
            ]
        )
    return scores
