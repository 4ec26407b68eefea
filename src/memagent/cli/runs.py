"""`memagent runs`: list, remove, prune."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from memagent.cli import options as opt
from memagent.cli.exits import Outcome, report_errors
from memagent.cli.options import Display, chosen_display, option
from memagent.cli.progress import Tally
from memagent.cli.setup import existing_store
from memagent.errors import ConfigError, RunBusy, RunNotFound, StoreCorrupt, StoreError
from memagent.terminal import moment, shorten
from memagent.texts import plural

if TYPE_CHECKING:
    from memagent.runstore import RunRecord, RunStore

runs = typer.Typer(help="List, remove and prune runs.", invoke_without_command=True)

STYLES = {"finished": "green", "running": "cyan"}
MADE = {"document": "chunks", "tools": "steps"}
"""What a run's progress is counted in, by its kind."""
TAIL = 64
"""Events at the end of a run that usually show how far it got."""
UNITS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
NO_RUNS = (
    "No runs yet. `memagent ask DOC 'QUESTION'` starts one; it is kept until you remove it, so you can resume or "
    "inspect it."
)
Status = Literal["finished", "stopped", "running", "interrupted"]


@runs.callback()
def list_runs(
    context: typer.Context,
    search: Annotated[
        str | None, option("Only runs whose question or document contains this text.", "TEXT")
    ] = None,
    status: Annotated[Status | None, option("Only runs with this status.")] = None,
    limit: Annotated[int | None, option("Only the newest N runs.", "N", low=1, high=10**9)] = None,
    store: opt.Store = None,
    display: opt.DisplayOption = None,
    json: opt.Json = False,
) -> None:
    """List the stored runs, newest first."""
    if context.invoked_subcommand is not None:
        context.obj = store
        return
    with report_errors(Outcome(chosen_display(display, json=json))) as outcome:
        outcome.store = run_store = existing_store(store)
        records = run_store.runs(limit=limit if search is status is None else None)
        text = (search or "").casefold()
        matches = (
            record
            for record in records
            if text in "\n".join((*questions_of(record), record.source.get("name", ""))).casefold()
            and status in (None, status_of(run_store, record))
        )
        rows = [_row(run_store, record) for record in islice(matches, limit)]
        if outcome.display is Display.JSON:
            outcome.tell(rows)
        elif outcome.display is Display.NONE:
            for row in rows:
                print(row["id"])
        elif rows:
            _write(rows, outcome)
        else:
            print("No run matches." if records else NO_RUNS)


@runs.command("rm")
def remove(
    context: typer.Context,
    run_ids: Annotated[list[str], typer.Argument(metavar="ID", help="The runs to remove.")],
    store: opt.Store = None,
) -> None:
    """Remove runs and everything stored with them. Runs in use are left alone."""
    with report_errors(Outcome()) as outcome:
        outcome.store = run_store = existing_store(store or context.obj)
        for run_id in (ids := dict.fromkeys(run_ids)):
            run_store.get(run_id)  # all of them exist, or none is removed
        for run_id in _remove(run_store, ids):
            print(f"removed {run_id}")


@runs.command()
def prune(
    context: typer.Context,
    older_than: Annotated[
        str | None, option("Runs that have not changed for this long: 45m, 12h, 30d, 8w.", "AGE")
    ] = None,
    finished: Annotated[bool, option("Only runs that were answered.", "", "--finished")] = False,
    yes: Annotated[bool, option("Do not ask.", "", "--yes", "-y")] = False,
    dry_run: Annotated[
        bool, option("List what would be removed, and remove nothing.", "", "--dry-run", "-n")
    ] = False,
    store: opt.Store = None,
) -> None:
    """Remove old or finished runs. Runs in use are left alone."""
    with report_errors(Outcome()) as outcome:
        if older_than is None and not finished:
            raise ConfigError(
                "prune needs to know which runs to remove: give --older-than (such as 30d), --finished, or both"
            )
        cutoff = time.time() - (0 if older_than is None else seconds_of(older_than))
        outcome.store = run_store = existing_store(store or context.obj)
        statuses = ("finished",) if finished else ("finished", "stopped", "interrupted")
        matches = [
            (record, status)
            for record in run_store.runs()
            if record.updated <= cutoff and (status := status_of(run_store, record)) in statuses
        ]
        ids = max((len(record.id) for record, _ in matches), default=0)
        for record, status in matches:
            text = shorten("; ".join(questions_of(record)), 60)
            print(f"{record.id:<{ids}}  {moment(record.updated)}  {status:<11}  {text}")
        number = plural(len(matches), "run")
        if not matches:
            print("no run to remove")
        elif dry_run:
            print(f"would remove {number}")
        elif not yes and (sys.stdin is None or not sys.stdin.isatty()):
            raise ConfigError(f"{number} would be removed: give --yes to confirm")
        elif yes or typer.confirm(f"Remove {number}?"):
            removed = [*_remove(run_store, [record.id for record, _ in matches])]
            print(f"removed {plural(len(removed), 'run')}")


def _remove(store: RunStore, ids: Iterable[str]) -> Iterator[str]:
    """Removes runs and yields their ids. At the end, raises a RunBusy that names those in use."""
    left: list[str] = []
    for run_id in ids:
        with suppress(RunNotFound):  # another process removed it
            try:
                store.remove(run_id)
                yield run_id
            except RunBusy:
                left.append(run_id)
    if left:
        names = ", ".join(left)
        raise RunBusy(f"in use by another process, so not removed: {names}; try again later")


def seconds_of(age: str) -> float:
    """Converts an age such as `30d` to seconds; raises a ConfigError if it is malformed."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([mhdw])", age.strip())
    if match is None:
        raise ConfigError(f"--older-than must be a number with m, h, d or w (30d), got {age!r}")
    return float(match[1]) * UNITS[match[2]]


def is_session(record: RunRecord) -> bool:
    """Returns whether a run is a tool session; else it reads a document."""
    return record.binding["agent"] == "tools"


def questions_of(record: RunRecord) -> list[str]:
    """Returns a run's questions; an extraction's without the schema that follows."""
    questions: list[str] = record.binding["questions"]
    rows = record.binding["agent"] == "extract"
    return [text.rpartition("\n\n")[0] if rows else text for text in questions]


def status_of(store: RunStore, record: RunRecord) -> str:
    """Returns `finished`, `stopped`, `running`, or `interrupted` if its process died."""
    if record.status != "running":
        return record.status
    try:
        with store.hold(record.id, wait=0):
            return "interrupted"
    except StoreError:
        return "running"


def _row(store: RunStore, record: RunRecord) -> dict[str, Any]:
    """Returns what is listed of a run: of one whose events can't be read an `error`, and not how far it got."""
    questions = questions_of(record)
    kind, subject = "document", {"document": record.source["name"], "questions": questions}
    if is_session(record):
        kind, subject = "tools", {"task": questions[0], "tools": record.binding["tools"]["names"]}
    row = {
        "id": record.id,
        "kind": kind,
        "created": record.created,
        "updated": record.updated,
        "status": status_of(store, record),
        "model": record.binding["model"],
        "calls": store.usage(record.id).calls,
        **subject,
    }
    try:
        tail = Tally.of(store, record, store.last_seq(record.id) - TAIL)
        return row | {MADE[kind]: tail.made or Tally.of(store, record).made}
    except StoreCorrupt as error:
        return row | {"error": str(error)}


def _write(rows: list[dict[str, Any]], outcome: Outcome) -> None:
    """Prints a table: on a terminal with the texts beneath each row, elsewhere one line per run."""
    ids = max(len(row["id"]) for row in rows)
    paper, full = outcome.paper, outcome.display is Display.FULL
    if full:
        unit = "/".join(dict.fromkeys(MADE[row["kind"]] for row in rows))
        head = f"{'id':<{ids}}  {'when':<16}  {'status':<11}  {unit:>7}  {'calls':>7}"
        paper.line((head, "dim"))
    for row in rows:
        start = f"{row['id']:<{ids}}  {moment(row['created'])}  "
        if "error" in row:
            paper.line(start, (f"{row['status']}  {row['error']}", "red"))
            continue
        question, *more = row["questions"] if row["kind"] == "document" else [row["task"]]
        question = f"{len(more) + 1} questions: {question}" if more else question
        source = row["document"] if "document" in row else f"tools: {', '.join(row['tools'])}"
        details = [shorten(question, 60), shorten(source, 60), row["model"]]
        status = (f"{row['status']:<11}", STYLES.get(row["status"], "yellow"))
        counts = f"  {row[MADE[row['kind']]]:>7,}  {row['calls']:>7,}"
        suffix = "" if full else "  ".join(["", *details])
        paper.line(start, status, counts, suffix)
        if full:
            paper.line((" · ".join(details), "dim"), indent=2)
