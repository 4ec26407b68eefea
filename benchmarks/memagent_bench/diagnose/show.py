"""A diagnosis for people (tables, and misses with what the step changed) and for programs (JSON)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memagent.terminal import plural, shorten
from memagent_bench.diagnose.diagnosis import Diagnosis, Hazard, hazard, open_runs
from memagent_bench.diagnose.fatal import Fatal, difference, fatal
from memagent_bench.diagnose.traces import Fate, Trace
from memagent_bench.folder import RUNS
from memagent_bench.lengths import show_length

if TYPE_CHECKING:
    from rich.console import Console

    from memagent.runstore import RunStore

VERDICTS = {
    Fate.NEVER_WRITTEN: "never written",
    Fate.LOST: "lost",
    Fate.HELD: "unread at answer",
    Fate.NO_EVIDENCE: "no evidence",
}
"""Of misses, in the order of the columns."""
WIDTH = 160
"""Characters shown of a sentence."""
QUESTION = 480
"""Of a question: what it asks stands at its end."""
TABLE = 200
"""More columns than the table takes."""


def show(diagnosis: Diagnosis, console: Console, misses: int = 0) -> None:
    """Writes a table of all cells, what was left out, and the first misses one by one. Blocks.

    Args:
        diagnosis: of a folder.
        console: where to.
        misses: how many to list, with the memory before and after the step that decided them.
    """
    from rich.segment import Segments
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("system", "task", "length"):
        table.add_column(name)
    for name in ("wanted", "missed", *VERDICTS.values(), "steps at risk", "lost a chunk (95%)"):
        table.add_column(name, justify="right")
    cells = diagnosis.cells
    for (system, suite, task, length), traces in cells.items():
        table.add_row(system, f"{suite} {task}", show_length(length), *_figures(traces))
    if len(cells) > 1:
        for system in sorted({cell[0] for cell in cells}):
            own = [trace for cell, traces in cells.items() if cell[0] == system for trace in traces]
            table.add_row(system, "all", "all", *_figures(own), style="bold")
    if cells:
        # Narrow consoles, and pipes, get whole lines: figures that rich shortens cannot be read.
        wide = console.options.update(max_width=max(console.width, TABLE))
        console.print(Segments(console.render(table, wide)), soft_wrap=True, end="")
    for line in remarks(diagnosis):
        console.print(line, markup=False, highlight=False)
    listed = diagnosis.misses[:misses]
    if listed:
        with open_runs(diagnosis.folder) as store:
            for trace in listed:
                _show_miss(trace, store, diagnosis, console)


def remarks(diagnosis: Diagnosis) -> list[str]:
    """What the figures leave out, and what casts doubt on them: one line each, none where all is well."""
    traces, lines = diagnosis.traces, list[str]()
    if not traces:
        lines.append(
            "There is nothing to diagnose: no answered sample has a run that can be followed."
        )
    if diagnosis.without_run:
        lines.append(
            f"{plural(diagnosis.without_run, 'record')} of systems that keep no memory: left out."
        )
    if diagnosis.unanswered:
        lines.append(f"{plural(diagnosis.unanswered, 'sample')} without an answer: left out.")
    for why, count in Counter(diagnosis.unread.values()).items():
        lines.append(f"{plural(count, 'run')} left out: {why}.")
    early = sum(trace.early for trace in traces)
    if early:
        lines.append(
            f"{plural(early, 'reference')} in a memory before its place was read: guessed, or told elsewhere."
        )
    back = sum(trace.returned > 0 for trace in traces)
    if back:
        lines.append(
            f"{plural(back, 'reference')} gone and back again, taken to be reworded: not counted as lost."
        )
    lucky = sum(trace.got and trace.fate in (Fate.LOST, Fate.NEVER_WRITTEN) for trace in traces)
    if lucky:
        lines.append(
            f"{plural(lucky, 'reference')} answered right though no memory was seen to hold it at the end."
        )
    return lines


def to_json(diagnosis: Diagnosis) -> str:
    """The diagnosis as one JSON object: cells, systems, misses, and what was left out."""
    cells = diagnosis.cells
    systems: dict[str, list[Trace]] = {}
    for (system, *_), traces in cells.items():
        systems.setdefault(system, []).extend(traces)
    whole: dict[str, Any] = {
        "folder": str(diagnosis.folder),
        "cells": [
            {"system": system, "suite": suite, "task": task, "length": length, **_counts(traces)}
            for (system, suite, task, length), traces in cells.items()
        ],
        "systems": {system: _counts(traces) for system, traces in systems.items()},
        "all": _counts(diagnosis.traces),
        "misses": [_miss(trace) for trace in diagnosis.misses],
        "unanswered": diagnosis.unanswered,
        "without_run": diagnosis.without_run,
        "unread": diagnosis.unread,
        "remarks": remarks(diagnosis),
    }
    return json.dumps(whole, ensure_ascii=False, indent=2)


def _counts(traces: Sequence[Trace]) -> dict[str, Any]:
    fates = Counter(trace.fate for trace in traces if not trace.got)
    risk = hazard(traces)
    return {
        "wanted": len(traces),
        "missed": fates.total(),
        **{name.replace(" ", "_"): fates[fate] for fate, name in VERDICTS.items()},
        "losses": risk.losses,
        "steps_at_risk": risk.steps,
        "hazard": risk.rate,
        "hazard_95": risk.interval,
    }


def _figures(traces: Sequence[Trace]) -> list[str]:
    counts = _counts(traces)
    names = ("wanted", "missed", *(name.replace(" ", "_") for name in VERDICTS.values()))
    risk = Hazard(counts["losses"], counts["steps_at_risk"])
    return [*(f"{counts[name]:,}" for name in names), f"{risk.steps:,}", _percent(risk)]


def _percent(risk: Hazard) -> str:
    if risk.interval is None or risk.rate is None:
        return "nothing to lose"
    low, high = risk.interval
    return f"{risk.rate:.2%} ({low:.2%} to {high:.2%})"


def _miss(trace: Trace) -> dict[str, Any]:
    record = trace.record
    return {
        "system": record.system,
        "suite": record.suite,
        "task": record.task,
        "length": record.length,
        "index": record.index,
        "reference": trace.reference,
        "verdict": trace.label,
        "chunk": trace.chunk,
        "chunks": record.chunks,
        "notes": trace.notes,
        "answer": record.answer,
        "run_id": record.run_id,
    }


def _show_miss(trace: Trace, store: RunStore, diagnosis: Diagnosis, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    record = trace.record
    step = fatal(trace, store)
    head = f"{record.suite} {record.task} {show_length(record.length)} sample {record.index}, {record.system}: "
    console.print()
    console.print(Text.assemble((head, "dim"), (trace.label, "bold")))
    lines: list[tuple[str, str]] = [
        ("question  ", shorten(record.question, QUESTION)),
        ("wanted    ", shorten(trace.reference, WIDTH)),
        ("answer    ", shorten(record.answer or "", WIDTH)),
    ]
    if trace.notes and trace.notes != (trace.reference,):
        lines.insert(2, ("memory    ", shorten(f"had to hold {' or '.join(trace.notes)}", WIDTH)))
    lines.append(("step      ", _where(step, trace)))
    for name, text in lines:
        console.print(Padding(Text.assemble((name, "dim"), text), (0, 0, 0, 2), expand=False))
    for change in difference(step, trace):
        for sign, text, style in (("-", change.removed, "red"), ("+", change.added, "green")):
            if text:
                line = Text(f"{sign} {shorten(text, WIDTH)}", style)
                console.print(Padding(line, (0, 0, 0, 4), expand=False))
    more = f"memagent show {record.run_id} --store {diagnosis.folder / RUNS}"
    console.print(Padding(Text(more, "dim"), (0, 0, 0, 2), expand=False))


def _where(step: Fatal, trace: Trace) -> str:
    if step.chunk is None:
        if trace.fate is Fate.NEVER_WRITTEN:
            return "the run had settled before the place was read; final memory and answer"
        return "final memory and answer"
    start, end = step.span or (0, 0)
    text = f"chunk {step.chunk}, characters {start:,} to {end:,}"
    if step.kept:
        return f"{text}: the memory was kept as it was"
    if step.truncated is not None:
        return (
            f"{text}: the memory was cut from {step.truncated[0]:,} to {step.truncated[1]:,} tokens"
        )
    return f"{text}: the memory changed"
