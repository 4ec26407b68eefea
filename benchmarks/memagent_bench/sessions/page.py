"""The page of sessions: tables, the picture, provenance; and the sessions themselves as CSV."""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memagent.errors import ConfigError
from memagent.terminal import amount
from memagent.texts import plural
from memagent_bench.report.facts import Fact
from memagent_bench.report.make import PAGE, TABLE, Report, make_folder, name_folders, write_whole
from memagent_bench.report.page import fill_template
from memagent_bench.report.words import join_words, points, span
from memagent_bench.sessions.figures import Cell, cells
from memagent_bench.sessions.plot import plot
from memagent_bench.sessions.record import SessionRecord, read_sessions
from memagent_bench.sessions.wire.figures import HEAD as WIRE_HEAD
from memagent_bench.sessions.wire.figures import PROBES, Row, rows
from memagent_bench.sessions.wire.loop_figures import LoopFigures
from memagent_bench.sessions.wire.plot import plot_steps
from memagent_bench.systems.base import Status

HEAD = (
    *("difficulty", "game", "seed", "system", "score", "reason", "steps", "summaries", "calls"),
    *("prompt_tokens", "completion_tokens", "largest_prompt", "seconds"),
    *("recall", "artifacts", "continuation", "decisions", "own_ms_per_step"),
    *("overflows", "broken_pairs", "repeated"),
)


@dataclass(frozen=True)
class Run:
    """One folder as shown on the page."""

    name: str
    summary: str
    cells: Sequence[Cell]
    picture: str
    """PNG in base64; empty if there is none."""
    rows: Sequence[Row]
    """Rows of loops at a server; if present, the cells aren't shown."""
    steps: str
    """PNG in base64 of such loops step by step; empty if there is none."""
    facts: Sequence[Fact]


def make_session_report(folders: Sequence[Path], out: Path) -> Report:
    """Writes `report.html`, with a section for each folder, and `results.csv`.

    Args:
        folders: each with a `sessions.jsonl`; the same folder twice counts once.
        out: the folder to write to, created if needed.

    Raises:
        ConfigError: there is no record yet, or `out` cannot be written.
        StoreError: a folder's records cannot be read.
    """
    read = {name: read_sessions(path) for name, path in name_folders(folders).items()}
    named = {name: records for name, records in read.items() if records}
    if not named:
        raise ConfigError(
            f"there are no sessions yet in {', '.join(map(repr, read))}: run `memagent-bench sessions` first"
        )
    runs = [_run(name, records) for name, records in named.items()]
    warned = [text for name, records in named.items() for text in _cautions(name, records)]
    every = [record for records in named.values() for record in records]
    html = fill_template(
        "sessions.html.j2",
        runs=runs,
        wire_head=WIRE_HEAD,
        cautions=warned,
        title=_title(every),
        byline=_byline(every),
        count=plural(len(every), "session"),
        folders=list(named),
    )
    with make_folder(out):
        table = write_whole(out / TABLE, _spreadsheet(named))
        page = write_whole(out / PAGE, html.encode("utf-8", "replace"))
    return Report(page, table, (), tuple(run.summary for run in runs), tuple(warned))


def _run(name: str, records: Sequence[SessionRecord]) -> Run:
    results, wired = cells(records), rows(records)
    summary = _summary_of_loops(wired) if wired else _summary(results)
    pictures = (_encode(plot(results)), wired, _encode(plot_steps(records)))
    return Run(name, summary, results, *pictures, _facts(records))


def _encode(picture: bytes | None) -> str:
    return "" if picture is None else base64.b64encode(picture).decode()


def _summary_of_loops(results: Sequence[Row]) -> str:
    """Describes which systems finish the first work with the most steps, and the cost."""
    longest = max(
        (row for row in results if row.game == results[0].game), key=lambda r: r.difficulty
    )
    peers = [row for row in results if row.work == longest.work]
    finishers = sorted(
        (row for row in peers if row.tokens is not None), key=lambda r: r.tokens or 0
    )
    parts = [f"{row.label} for {amount(row.tokens or 0)} prompt tokens" for row in finishers]
    others = [row.label for row in peers if row.tokens is None]
    sentence = (
        f"Work of {longest.difficulty:,} steps is finished by {join_words(parts) or 'nobody'}"
    )
    return f"{sentence}; not by {join_words(others)}." if others and finishers else f"{sentence}."


def _summary(results: Sequence[Cell]) -> str:
    """Describes every system in the longest games."""
    longest = max(cell.difficulty for cell in results)
    parts = [
        f"{cell.arm.label} scores {points(cell.success.mean)} of 100 for {amount(cell.prompt_tokens.median)} prompt "
        f"tokens"
        for cell in results
        if cell.difficulty == longest
    ]
    return f"In games of {longest:,} steps, {join_words(parts)} (median of the sessions)."


def _cautions(name: str, records: Sequence[SessionRecord]) -> list[str]:
    texts: list[str] = []
    if failed := sum(record.status is Status.FAILED for record in records):
        texts.append(
            f"{name}: {plural(failed, 'session')} failed, counted as 0; repeat the command to retry."
        )
    if dirty := sum(record.origin.dirty is True for record in records):
        texts.append(
            f"{name}: {plural(dirty, 'session')} from a source tree with uncommitted changes."
        )
    return texts


def _facts(records: Sequence[SessionRecord]) -> list[Fact]:
    """Returns the origin, field by field, each value once."""
    rows: list[Fact] = []
    origins = [record.origin.model_dump(mode="json") for record in records]
    for field in origins[0]:
        values = dict.fromkeys(_words(origin[field]) for origin in origins)
        rows.append(Fact(field, tuple((value, "") for value in values)))
    return rows


def _words(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {version}" for name, version in value.items())  # pyright: ignore[reportUnknownVariableType]
    return "–" if value is None else str(value)


def _title(records: Sequence[SessionRecord]) -> str:
    steps = sorted({record.difficulty for record in records})
    span = f"{steps[0]:,}" if len(steps) == 1 else f"{steps[0]:,} to {steps[-1]:,}"
    return f"Tool sessions, {span} steps"


def _byline(records: Sequence[SessionRecord]) -> str:
    models = list(dict.fromkeys(record.origin.model for record in records))
    games = {record.game for record in records}
    when = span(record.started[:10] for record in records)
    return f"model {join_words(models)} · {plural(len(games), 'game')} · {when}"


def _spreadsheet(named: Mapping[str, Sequence[SessionRecord]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("folder", *HEAD))
    for name, records in named.items():
        for r in records:
            usage = r.usage
            writer.writerow(
                (
                    *(name, r.difficulty, r.game, r.seed, r.arm.label, r.score, r.reason, r.steps),
                    *(r.summaries, usage.calls, usage.prompt_tokens, usage.completion_tokens),
                    *(r.largest_prompt, r.seconds),
                    *_list_figures(r.wired),
                )
            )
    return text.getvalue().encode("utf-8", "replace")


def _list_figures(wired: LoopFigures | None) -> tuple[object, ...]:
    """Returns the columns that only loops at a server have."""
    if wired is None:
        return ("",) * 8
    probes = [getattr(wired.probes, name, "") for name in PROBES]
    milliseconds = wired.own_milliseconds
    return (
        *probes,
        "" if milliseconds is None else milliseconds,
        wired.overflows,
        wired.broken_pairs,
        wired.repeated,
    )
