"""The conclusion in plain words, for readers who read only that."""

from __future__ import annotations

from collections.abc import Sequence

from memagent.texts import plural, show_length
from memagent_bench.report.compare import Contrast, find_contrast
from memagent_bench.report.costs import Growth
from memagent_bench.report.primary import MEAN, Hypothesis
from memagent_bench.report.ruler import Summary
from memagent_bench.report.view import View
from memagent_bench.report.words import (
    between,
    interval,
    join_words,
    number,
    p_text,
    points,
    share,
    sign_points,
)
from memagent_bench.significance import Verdict

RANKED = 4
"""Maximum systems named in the ranking; the tables have all."""
AS_PREDICTED = 0.02
"""Maximum deviation from 1 of the ratio of measured to predicted calls that is called "as predicted"."""


def summary(view: View, tests: Sequence[Hypothesis], margin: float) -> tuple[str, str]:
    """Summarises a suite in two paragraphs: what became of the score, and everything else."""
    more = [
        _describe_effective(view),
        _calls(view),
        _ranking(view),
        _tests(view, tests),
        _describe_missing(view),
    ]
    return _trend(view, margin), " ".join(sentence for sentence in more if sentence)


def verdict_words(verdict: Verdict, margin: float) -> str:
    """Returns the meaning of a verdict, as the end of a sentence."""
    limit = f"{100 * margin:g} points"
    return {
        Verdict.NON_INFERIOR: f"a loss of {limit} or more is ruled out (non-inferior)",
        Verdict.INFERIOR: f"the loss is more than {limit} (inferior)",
        Verdict.INCONCLUSIVE: f"a loss of {limit} is neither shown nor ruled out (inconclusive)",
    }[verdict]


def _trend(view: View, margin: float) -> str:
    """Describes the baseline at its shortest and its longest length."""
    label, lengths = view.baseline, view.suite.lengths_of(view.baseline)
    first = view.means[label, lengths[0]]
    over = "the only task" if len(first.tasks) == 1 else f"{len(first.tasks)} tasks"
    where = f"{first.tasks[0]}" if len(first.tasks) == 1 else f"the mean of {over}"
    start = (
        f"On {where}, {label} scores {points(first.estimate.mean)} of 100 at {show_length(lengths[0])} "
        f"(95% interval {interval(first.estimate)}, {plural(first.estimate.n, 'sample')})"
    )
    if len(lengths) == 1:
        return f"{start}."
    last = view.means[label, lengths[-1]].estimate
    loss = find_contrast(view.losses, label, lengths[-1])
    end = f" and {points(last.mean)} at {show_length(lengths[-1])} ({interval(last)})"
    if loss is None:
        return f"{start}{end}; no task was run at both lengths."
    tasks = (
        "" if loss.tasks == first.tasks else f" over the {plural(len(loss.tasks), 'task')} of both"
    )
    return (
        f"{start}{end}. The change is {sign_points(loss.difference.mean)} points{tasks} ({between(loss.difference)}): "
        f"{verdict_words(loss.verdict, margin)}."
    )


def _describe_effective(view: View) -> str:
    return " ".join(_effective_words(of) for of in view.ruler if of.has_effective_length)


def _effective_words(of: Summary) -> str:
    if of.effective is None:
        return f"At no length does {of.label} reach RULER's threshold of 85.6."
    but = f", though it is below at {join_words([*map(show_length, of.below)])}" if of.below else ""
    length = show_length(of.effective)
    return f"The effective length of {of.label} by RULER's threshold of 85.6 is {length}{but}."


def _ranking(view: View) -> str:
    """Ranks all systems at the longest length of the baseline, best first."""
    length = view.suite.lengths_of(view.baseline)[-1]
    tasks = view.means[view.baseline, length].tasks
    means = {
        label: view.means[label, length].estimate.mean
        for label in view.suite.labels
        if (label, length) in view.means and view.means[label, length].tasks == tasks
    }
    if len(means) < 2:
        return ""
    best = sorted(means, key=lambda label: -means[label])
    named = [f"{label} {points(means[label])}" for label in best[:RANKED]]
    other_count = len(best) - RANKED
    more = f"; {other_count} others score no higher" if other_count > 0 else ""
    return f"At {show_length(length)} the scores are {join_words(named)}{more}."


def _tests(view: View, tests: Sequence[Hypothesis]) -> str:
    """Describes the primary comparisons; only their number if there are many."""
    suite_tests = [t for t in tests if t.suite == view.suite.name and t.adjusted is not None]
    if len(suite_tests) > RANKED:
        differ = sum((t.adjusted or 0) < 0.05 for t in suite_tests)
        return (
            f"Of {len(suite_tests)} primary comparisons with {view.baseline}, {differ} show a difference (adjusted p "
            f"below 0.05)."
        )
    cells = dict.fromkeys(t.cell for t in suite_tests)
    return " ".join(_in_cell(cell, [t for t in suite_tests if t.cell == cell]) for cell in cells)


def _in_cell(cell: str, tests: Sequence[Hypothesis]) -> str:
    task, _, length = cell.partition("@")
    where = f"{'the mean' if task == MEAN else task} at {length}"
    return f"In {where}, {'; '.join(_describe_test(t, t.contrast) for t in tests if t.contrast)}."


def _describe_test(t: Hypothesis, contrast: Contrast) -> str:
    mean = contrast.difference.mean
    by = (
        f"{points(abs(mean))} points {'less' if mean < 0 else 'more'} than"
        if mean
        else "the same as"
    )
    p = p_text(t.adjusted)
    return (
        f"{t.label} scores {by} {t.baseline} ({between(contrast.difference)}; adjusted p "
        f"{p if p.startswith('<') else f'= {p}'})"
    )


def _calls(view: View) -> str:
    growth: Growth | None = next((g for g in view.growth if g.label == view.baseline), None)
    if growth is None or growth.calls is None:
        return ""
    if (
        abs(growth.calls.ratio - 1) <= AS_PREDICTED
        and len(view.suite.lengths_of(view.baseline)) > 1
    ):
        return f"Its calls grow with length as predicted (measured / predicted {number(growth.calls.ratio)})."
    return f"It makes {number(growth.calls.ratio)} times the predicted calls."


def _describe_missing(view: View) -> str:
    n = len(view.suite.records)
    if not view.failures:
        return f"All {n:,} samples have a score." if n > 1 else ""
    count = len(view.failures)
    return (
        f"{plural(count, 'sample')} of {n:,} ({share(count / n)}) have no score and count as 0."
        if count > 1
        else f"1 sample of {n:,} has no score and counts as 0."
    )
