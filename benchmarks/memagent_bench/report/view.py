"""Everything that the page shows for a suite, computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from memagent_bench.report.cells import Suite
from memagent_bench.report.charts import Chart, Point, Series
from memagent_bench.report.compare import Contrast, Mean, contrast, losses, means
from memagent_bench.report.costs import Cost, Growth, costs, growth
from memagent_bench.report.facts import Fact, task_facts
from memagent_bench.report.failures import Failure, failures
from memagent_bench.report.heatmap import HeatMap, depth_map, heat_map
from memagent_bench.report.overlay import Overlay, overlay_chart, overlays
from memagent_bench.report.ruler import Summary, summaries
from memagent_bench.report.theme import Mark, mark
from memagent_bench.report.words import suite_title
from memagent_bench.systems.base import Status


@dataclass(frozen=True)
class View:
    """The results of one suite."""

    suite: Suite
    title: str
    baseline: str
    """Label of the system that the others are compared with."""
    means: dict[tuple[str, int], Mean]
    heat_maps: list[HeatMap]
    depth_maps: list[HeatMap]
    charts: list[Chart]
    overlays: list[tuple[Overlay, Chart]]
    losses: list[Contrast]
    contrasts: list[Contrast]
    costs: list[Cost]
    growth: list[Growth]
    ruler: list[Summary]
    failures: list[Failure]
    stopped: Counter[tuple[str, int]]
    """Number of failures that ended without an error, by label and length."""
    facts: list[Fact]


def view(suite: Suite, baseline: str, labels: tuple[str, ...], margin: float) -> View:
    """Computes everything.

    Args:
        suite: a suite with records.
        baseline: one of its labels.
        labels: labels of all suites: a system looks the same in all of them.
        margin: of non-inferiority, as a fraction.
    """
    marks = {label: mark(i) for i, label in enumerate(labels)}
    scored = means(suite)
    costed, failed = costs(suite), failures(suite)
    return View(
        suite=suite,
        title=suite_title(suite.name),
        baseline=baseline,
        means=scored,
        heat_maps=[heat_map(suite, label, scored) for label in suite.labels],
        depth_maps=[heat for label in suite.labels if (heat := depth_map(suite, label))],
        charts=_charts(suite, scored, costed, marks),
        overlays=[
            (overlay, overlay_chart(f"{suite.name}-published-{i}", overlay, marks))
            for i, overlay in enumerate(overlays(suite), 1)
        ],
        losses=losses(suite, margin),
        contrasts=[
            comparison
            for label in suite.labels
            for length in suite.lengths
            if label != baseline
            and (comparison := contrast(suite, label, baseline, length, margin))
        ],
        costs=costed,
        growth=growth(suite),
        ruler=summaries(suite, scored),
        failures=failed,
        stopped=Counter(
            (f.label, f.record.length) for f in failed if f.record.status is Status.STOPPED
        ),
        facts=task_facts(suite),
    )


def _charts(
    suite: Suite, scored: dict[tuple[str, int], Mean], costed: list[Cost], marks: dict[str, Mark]
) -> list[Chart]:
    title = suite_title(suite.name)
    tasks = (
        "mean score of the tasks" if len(suite.tasks) > 1 else f"score of {next(iter(suite.tasks))}"
    )
    charts = [
        Chart(
            f"{suite.name}-scores",
            f"{title}: score against length",
            f"{tasks} in points",
            [
                Series(
                    label,
                    marks[label],
                    {n: mean.estimate for (name, n), mean in scored.items() if name == label},
                )
                for label in suite.labels
            ],
            scores=True,
        )
    ]
    amounts: list[
        tuple[str, str, Callable[[Cost], Point | None], Callable[[Cost], float | None]]
    ] = [
        ("seconds", "seconds for a sample", lambda c: c.seconds, lambda c: None),
        ("calls", "calls for a sample", lambda c: c.calls, lambda c: c.predicted_calls),
        ("tokens", "tokens for a sample", lambda c: c.tokens, lambda c: c.predicted_tokens),
    ]
    for name, axis, amount, predicted in amounts:
        lines = _amounts(suite, costed, marks, amount, predicted)
        if lines:
            charts.append(
                Chart(f"{suite.name}-{name}", f"{title}: {name} against length", axis, lines)
            )
    return charts


def _amounts(
    suite: Suite,
    costed: list[Cost],
    marks: dict[str, Mark],
    amount: Callable[[Cost], Point | None],
    predicted: Callable[[Cost], float | None],
) -> list[Series]:
    """Returns series of the systems with non-zero amounts: a logarithmic axis can't show 0."""
    series: list[Series] = []
    for label in suite.labels:
        label_costs = [cost for cost in costed if cost.label == label]
        points = {c.length: mean for c in label_costs if (mean := amount(c)) and mean.mean > 0}
        guesses = {c.length: p for c in label_costs if (p := predicted(c))}
        if points:
            series.append(Series(label, marks[label], points, guesses))
    return series
