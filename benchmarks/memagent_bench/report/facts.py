"""What must be equal before two results can be compared, according to the records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memagent.texts import show_length
from memagent_bench.record import Provenance, Record
from memagent_bench.report.cells import Suite
from memagent_bench.report.words import join_words, span
from memagent_bench.systems.registry import WITHOUT_MODEL

ORDER = (
    "The question is given separately from the document, and memagent's prompt sets put it first (query-first). "
    "RULER's own prompt puts it after the document, which is harder."
)


def _commit(provenance: Provenance) -> str:
    if provenance.commit is None:
        return "unknown: not run from a source tree"
    return f"{provenance.commit[:12]}{', with changes not committed' if provenance.dirty else ''}"


PROVENANCE: dict[str, Callable[[Provenance], str]] = {
    "model": lambda p: p.model,
    "server": lambda p: p.server or "the model ran in the same process",
    "prompt set": lambda p: p.prompts,
    "chunker": lambda p: p.chunker,
    "window": lambda p: f"{p.window:,} tokens",
    "memory": lambda p: f"{p.memory_tokens:,} tokens",
    "sampling": lambda p: f"temperature {p.sampling.temperature:g}, top-p {p.sampling.top_p:g}",
    "seed": lambda p: str(p.seed),
    "commit": _commit,
    "packages": lambda p: ", ".join(f"{name} {version}" for name, version in p.packages.items()),
    "Python": lambda p: p.python,
    "machine": lambda p: p.machine,
}
"""Row of the table -> its value in a provenance."""
TASK_FACTS = {
    "haystack": "haystack",
    "positions": "positions of the evidence",
    "wording": "wording of the tasks",
    "nested": "nested lengths",
    "rounds": "rounds of filler",
    "length_tokenizer": "length tokenizer",
}
"""Facts of tasks that have a label on this page; others are shown by their own names."""


@dataclass(frozen=True)
class Fact:
    """One row: its values, each with the systems or tasks that have it."""

    name: str
    values: tuple[tuple[str, str], ...]
    """Value, and the systems or tasks that have it; empty if all have it."""


def provenance_facts(suites: Sequence[Suite]) -> list[Fact]:
    """Returns model, server, prompts, chunker, sampling, commit, machine."""
    facts: list[Fact] = []
    for name, of in PROVENANCE.items():
        holders: dict[str, dict[str, None]] = {}
        for suite in suites:
            for (label, _, _), records in suite.cells.items():
                for record in records:
                    holders.setdefault(of(record.provenance), {})[label] = None
        facts.append(Fact(name, _values(holders, len({x for s in suites for x in s.labels}))))
    facts.append(Fact("question", ((ORDER, ""),)))
    alone = [
        name
        for name in sorted(WITHOUT_MODEL)
        if any(name == r.system for s in suites for r in s.records)
    ]
    if alone:
        facts.append(
            Fact("without the model", ((f"{join_words(alone)}: no language model was used", ""),))
        )
    return facts


def task_facts(suite: Suite) -> list[Fact]:
    """Returns the facts that a suite's tasks report about their data, their scorers, and the numbers of samples."""
    holders: dict[str, dict[str, dict[tuple[str, int], None]]] = {}
    for record in suite.records:
        facts = {"scorer": record.scorer, **record.facts}
        for name, value in facts.items():
            where = holders.setdefault(name, {}).setdefault(_put_in_words(value), {})
            where[record.task, record.length] = None
    rows = [
        Fact(
            TASK_FACTS.get(name, name),
            tuple((value, _where(suite, list(where))) for value, where in values.items()),
        )
        for name, values in holders.items()
    ]
    return [*rows, _samples(suite), _period(suite.records)]


def _where(suite: Suite, places: Sequence[tuple[str, int]]) -> str:
    """Names the tasks and lengths of these places; empty if they are all."""
    tasks = list(dict.fromkeys(task for task, _ in places))
    lengths = sorted({length for _, length in places})
    parts = [", ".join(tasks)] if len(tasks) < len(suite.tasks) else []
    if len(lengths) < len(suite.lengths):
        parts.append(f"at {', '.join(map(show_length, lengths))}")
    return " ".join(parts)


def _samples(suite: Suite) -> Fact:
    """Returns the samples per task, by system: one number, or a range."""
    sizes: dict[str, dict[str, None]] = {}
    for label in suite.labels:
        of = [len(records) for (name, _, _), records in suite.cells.items() if name == label]
        text = f"{min(of):,}" if min(of) == max(of) else f"{min(of):,} to {max(of):,}"
        sizes.setdefault(text, {})[label] = None
    return Fact("samples per task and length", _values(sizes, len(suite.labels)))


def _period(records: Sequence[Record]) -> Fact:
    return Fact("run on", ((span(record.started[:10] for record in records), ""),))


def _values(holders: dict[str, dict[str, None]], everyone: int) -> tuple[tuple[str, str], ...]:
    if len(holders) == 1:
        (value, who) = next(iter(holders.items()))
        return ((value, "" if len(who) == everyone else ", ".join(who)),)
    return tuple((value, ", ".join(who)) for value, who in holders.items())


def _put_in_words(value: str | int | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else value
