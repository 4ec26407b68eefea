"""Caveats a reader should know before trusting a number: one sentence each, from the records alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from memagent.tasks.statistics import wilson
from memagent.texts import plural, show_length
from memagent_bench.published import RULER_TASKS
from memagent_bench.record import Record
from memagent_bench.report.cells import Suite
from memagent_bench.report.facts import PROVENANCE
from memagent_bench.report.words import join_words, share, suite_title
from memagent_bench.suites import CONTROL

FEW = 100
"""Samples per task and length below which the score's margin exceeds about ±10 points."""
SHARED = 1.25
"""Samples about the same document, as a mean over samples, from which intervals may be over a tenth too narrow: if the
answers about a document are all right or all wrong, an interval should be wider by the square root of this."""
NOISE = "noise"
"""The haystack that is one repeated line, as RULER's is."""
MIXED = (
    "server",
    "prompt set",
    "chunker",
    "window",
    "memory",
    "sampling",
    "seed",
    "commit",
    "packages",
)
"""Provenance fields of a system that should have one value. Machines may differ: they change times, not scores."""


def cautions(suites: Sequence[Suite]) -> list[str]:
    """Returns all that apply, the most serious first."""
    texts: list[str] = []
    for suite in suites:
        name = f"{suite_title(suite.name)}: " if len(suites) > 1 else ""
        texts += [
            f"{name}{text}"
            for part in (
                _warn_of_unscored,
                _warn_of_samples,
                _warn_of_tasks,
                _warn_of_few,
                _warn_of_shared,
                _warn_of_repetition,
                _warn_of_resumed,
            )
            for text in part(suite)
        ]
    return [*_warn_of_provenance(suites), *texts]


def _warn_of_provenance(suites: Sequence[Suite]) -> Iterator[str]:
    records = [record for suite in suites for record in suite.records]
    for name in MIXED:
        values = dict.fromkeys(PROVENANCE[name](record.provenance) for record in records)
        if len(values) > 1:
            named = join_words([str(value) for value in list(values)[:3]])
            more = "" if len(values) <= 3 else f" and {len(values) - 3} more"
            yield f"Records differ in their {name}: {named}{more}."
    dirty = sum(record.provenance.dirty is True for record in records)
    if dirty:
        yield (
            f"{share(dirty / len(records))} of the records come from a source tree with uncommitted "
            f"changes: the commit alone does not reproduce them."
        )


def _warn_of_unscored(suite: Suite) -> Iterator[str]:
    records = suite.records
    missing = [record for record in records if record.score is None]
    if missing:
        of = [
            f"{share(n / len(label_records))} of {label}"
            for label in suite.labels
            if (label_records := suite.of(label))
            and (n := sum(r.score is None for r in label_records))
        ]
        yield (
            f"{len(missing):,} of {plural(len(records), 'sample')} have no score ({_list_some(of)}): they count as 0, "
            f"and are listed separately."
        )


def _warn_of_samples(suite: Suite) -> Iterator[str]:
    """Warns of systems that did not get the same samples, or not all of them; controls have none."""
    other: list[str] = []
    fewer: list[str] = []
    for task in suite.tasks:
        for length in suite.lengths:
            cells = [suite.cells.get((label, task, length), ()) for label in suite.labels]
            groups = [of for of in cells if of and not of[0].task.endswith(CONTROL)]
            if _conflict(groups):
                other.append(f"{task} at {show_length(length)}")
            elif len({frozenset(r.index for r in records) for records in groups}) > 1:
                fewer.append(f"{task} at {show_length(length)}")
    if other:
        yield (
            f"Systems had different documents with the same numbers in {_list_some(other)}: they are compared "
            f"without pairing."
        )
    if fewer:
        yield f"Systems have different sets of samples in {_list_some(fewer)}: a run may be unfinished."


def _conflict(cells: Sequence[Sequence[Record]]) -> bool:
    documents: dict[int, str] = {}
    return any(
        documents.setdefault(record.index, record.document) != record.document
        for records in cells
        for record in records
    )


def _warn_of_tasks(suite: Suite) -> Iterator[str]:
    partial = [
        f"{label} at {show_length(length)} ({len(tasks)} of {len(suite.tasks)})"
        for label in suite.labels
        for length in suite.lengths_of(label)
        if len(tasks := suite.tasks_of(label, length)) < len(suite.tasks)
    ]
    if partial:
        yield f"Some means are over fewer tasks than others: {_list_some(partial)}."
    if suite.name == "ruler" and not set(RULER_TASKS) <= set(suite.tasks):
        count = len(set(suite.tasks) & set(RULER_TASKS))
        yield (
            f"Only {count} of RULER's 13 tasks were run: the mean is not RULER's score, and there is no effective "
            f"length."
        )


def _warn_of_few(suite: Suite) -> Iterator[str]:
    least = min(map(len, suite.cells.values()))
    if least < FEW:
        low, high = wilson(0.5, least)
        yield (
            f"The smallest cell has {plural(least, 'sample')}: near 50, such a score has a margin of "
            f"±{50 * (high - low):.0f} "
            f"points (95% confidence)."
        )


def _warn_of_shared(suite: Suite) -> Iterator[str]:
    """Warns of questions about the same documents, which controls don't read."""
    samples: set[tuple[str, int, int, str]] = set()
    for records in suite.cells.values():
        counts = Counter(record.document for record in records).values()
        shared = sum(count**2 for count in counts) / len(records)
        if shared >= SHARED and not records[0].task.endswith(CONTROL):
            samples |= {(r.task, r.length, r.index, r.document) for r in records}
    if samples:
        documents = len({document for *_, document in samples})
        yield (
            f"{plural(len(samples), 'sample')} share {plural(documents, 'document')}: their answers are not "
            f"independent, so intervals are too narrow."
        )


def _warn_of_repetition(suite: Suite) -> Iterator[str]:
    rounds: dict[tuple[str, int], int] = {}
    for record in suite.records:
        times = record.facts.get("rounds", 1)
        by_design = record.facts.get("haystack") == NOISE
        if isinstance(times, int) and times > 1 and not by_design:
            rounds[record.task, record.length] = times
    if rounds:
        worst, times = max(rounds.items(), key=lambda item: item[1])
        tasks = list(dict.fromkeys(task for task, _ in rounds))
        whose = "every task" if len(tasks) == len(suite.tasks) > 1 else _list_some(tasks)
        shortest = min(length for _, length in rounds)
        yield (
            f"The filler of {whose} repeats from {show_length(shortest)} on (up to {times:,} times, in "
            f"{worst[0]} at {show_length(worst[1])}): repeated text may be easier to skip."
        )


def _warn_of_resumed(suite: Suite) -> Iterator[str]:
    resumed = sum(record.resumed for record in suite.records)
    if resumed:
        yield f"{plural(resumed, 'sample')} resumed after an interruption: left out of times."


def _list_some(items: Sequence[str], limit: int = 4) -> str:
    if len(items) <= limit:
        return join_words(list(items))
    return f"{', '.join(items[:limit])} and {len(items) - limit} more"
