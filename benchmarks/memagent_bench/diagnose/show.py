"""A diagnosis for people (tables, and misses with what the step changed) and for programs (JSON)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from memagent.terminal import shorten
from memagent.texts import plural, show_length
from memagent_bench.diagnose.diagnosis import Diagnosis, Hazard, hazard, hazard_per_note, open_runs
from memagent_bench.diagnose.fatal import Fatal, difference, fatal
from memagent_bench.diagnose.traces import Fate, Trace
from memagent_bench.folder import RUNS

if TYPE_CHECKING:
    from rich.console import Console

    from memagent.runstore import RunStore

VERDICTS = {
    Fate.NEVER_WRITTEN: "never written",
    Fate.LOST: "lost",
    Fate.HELD: "unread at answer",
    Fate.NO_EVIDENCE: "no evidence",
}
"""Fates of misses, in the order of the columns."""
HAZARDS = ("steps at risk", "lost a chunk (95%)", "notes met", "lost a note (95%)")
"""Columns: chunks read, and competing notes met, while the memory held what is required."""
WIDTH = 160
"""Maximum characters shown of a sentence."""
QUESTION = 480
"""Maximum characters shown of a question, from its end, which says what is asked."""
TABLE = 240
"""Width in columns, more than the table needs."""


def show(diagnosis: Diagnosis, console: Console, misses: int = 0) -> None:
    """Prints a table of all cells, what was left out, and the first misses in detail. Blocks.

    Args:
        diagnosis: the diagnosis of a folder.
        console: the console to print to.
        misses: number of misses to list, each with the memory before and after the step that decided it.
    """
    from rich.segment import Segments
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("system", "task", "length"):
        table.add_column(name)
    for name in ("wanted", "missed", *VERDICTS.values(), *HAZARDS):
        table.add_column(name, justify="right")
    cells = diagnosis.cells
    for (system, suite, task, length), traces in cells.items():
        table.add_row(system, f"{suite} {task}", show_length(length), *_figures(traces))
    if len(cells) > 1:
        for system in sorted({cell[0] for cell in cells}):
            system_traces = [
                trace for cell, traces in cells.items() if cell[0] == system for trace in traces
            ]
            table.add_row(system, "all", "all", *_figures(system_traces), style="bold")
    if cells:
        # Narrow consoles and pipes get whole lines: shortened figures would be unreadable.
        wide = console.options.update(max_width=max(console.width, TABLE))
        console.print(Segments(console.render(table, wide)), soft_wrap=True, end="")
    for line in remarks(diagnosis):
        console.print(line, markup=False, highlight=False)
    listed = diagnosis.misses[:misses]
    if listed:
        with open_runs(diagnosis.folder) as store:
            for _, lacking in groupby(listed, key=lambda trace: trace.record.key):
                _show_sample(list(lacking), store, diagnosis, console)


def remarks(diagnosis: Diagnosis) -> list[str]:
    """Returns caveats about the figures, one line each; empty if there are none."""
    traces, lines = diagnosis.traces, list[str]()
    if not traces:
        lines.append(
            "There is nothing to diagnose: no answered sample has a run that can be traced."
        )
    if diagnosis.without_run:
        lines.append(
            f"{plural(diagnosis.without_run, 'record')} of systems without a memory: left out."
        )
    if diagnosis.unanswered:
        lines.append(f"{plural(diagnosis.unanswered, 'sample')} without an answer: left out.")
    for why, count in Counter(diagnosis.unread.values()).items():
        lines.append(f"{plural(count, 'run')} left out: {why}.")
    early = sum(trace.early for trace in traces)
    if early:
        lines.append(
            f"{plural(early, 'reference')} in a memory before its place was read: guessed, or mentioned elsewhere."
        )
    back = sum(trace.returned > 0 for trace in traces)
    if back:
        lines.append(
            f"{plural(back, 'reference')} disappeared and came back, probably reworded: not counted as lost."
        )
    lucky = sum(trace.got and trace.fate in (Fate.LOST, Fate.NEVER_WRITTEN) for trace in traces)
    if lucky:
        lines.append(
            f"{plural(lucky, 'reference')} answered right although not found in the final memory."
        )
    return lines


def to_json(diagnosis: Diagnosis) -> str:
    """Returns the diagnosis as a JSON object: cells, systems, misses, and what was left out."""
    cells = diagnosis.cells
    systems: dict[str, list[Trace]] = {}
    for (system, *_), traces in cells.items():
        systems.setdefault(system, []).extend(traces)
    data: dict[str, Any] = {
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
    return json.dumps(data, ensure_ascii=False, indent=2)


def _counts(traces: Sequence[Trace]) -> dict[str, Any]:
    fates = Counter(trace.fate for trace in traces if not trace.got)
    risk, per_note = hazard(traces), hazard_per_note(traces)
    return {
        "wanted": len(traces),
        "missed": fates.total(),
        **{name.replace(" ", "_"): fates[fate] for fate, name in VERDICTS.items()},
        "losses": risk.losses,
        "steps_at_risk": risk.steps,
        "hazard": risk.rate,
        "hazard_95": risk.interval,
        "notes_met": None if per_note is None else per_note.steps,
        "hazard_per_note": None if per_note is None else per_note.rate,
        "hazard_per_note_95": None if per_note is None else per_note.interval,
    }


def _figures(traces: Sequence[Trace]) -> list[str]:
    counts = _counts(traces)
    names = ("wanted", "missed", *(name.replace(" ", "_") for name in VERDICTS.values()))
    figures = [f"{counts[name]:,}" for name in names]
    for risk in (hazard(traces), hazard_per_note(traces)):
        figures += ("–", "–") if risk is None else (f"{risk.steps:,}", _percent(risk))
    return figures


def _percent(risk: Hazard) -> str:
    if risk.rate is None:
        return "nothing to lose"
    if risk.interval is None:
        return f"{risk.rate:.2%}"
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


def _show_sample(
    lacking: Sequence[Trace], store: RunStore, diagnosis: Diagnosis, console: Console
) -> None:
    """Prints a sample's question and answer, then each reference that the answer lacks."""
    from rich.text import Text

    record = lacking[0].record
    head = f"{record.suite} {record.task} {show_length(record.length)} sample {record.index}, {record.system}: "
    console.print()
    labels = ", ".join(dict.fromkeys(trace.label for trace in lacking))
    console.print(Text.assemble((head, "dim"), (labels, "bold")))
    _show_line(console, "question  ", shorten(record.question, QUESTION))
    _show_line(console, "answer    ", shorten(record.answer or "", WIDTH))
    for trace in lacking:
        _show_miss(trace, len(lacking) > 1, store, console)
    _show_line(console, f"memagent show {record.run_id} --store {diagnosis.folder / RUNS}", "")


def _show_miss(trace: Trace, several: bool, store: RunStore, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    step = fatal(trace, store)
    verdict = f" ({trace.label})" if several else ""
    _show_line(console, "wanted    ", f"{shorten(trace.reference, WIDTH)}{verdict}")
    if trace.notes and trace.notes != (trace.reference,):
        notes = shorten(f"should contain {' or '.join(trace.notes)}", WIDTH)
        _show_line(console, "memory    ", notes)
    _show_line(console, "step      ", _where(step, trace))
    for change in difference(step, trace):
        for sign, text, style in (("-", change.removed, "red"), ("+", change.added, "green")):
            if text:
                line = Text(f"{sign} {shorten(text, WIDTH)}", style)
                console.print(Padding(line, (0, 0, 0, 4), expand=False))


def _show_line(console: Console, name: str, text: str) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text.assemble((name, "dim"), text), (0, 0, 0, 2), expand=False))


def _where(step: Fatal, trace: Trace) -> str:
    if step.chunk is None:
        if trace.fate is Fate.NEVER_WRITTEN:
            return "the run settled before this place was read; final memory and answer"
        return "final memory and answer"
    start, end = step.span or (0, 0)
    text = f"chunk {step.chunk}, characters {start:,} to {end:,}"
    if step.kept:
        return f"{text}: the memory was kept unchanged"
    if step.truncated is not None:
        return (
            f"{text}: the memory was cut from {step.truncated[0]:,} to {step.truncated[1]:,} tokens"
        )
    return f"{text}: the memory changed"
