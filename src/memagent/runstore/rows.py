"""Rows of the run store, within a transaction that the caller holds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from memagent.events import Event
from memagent.messages import Usage
from memagent.runstore.records import RunRecord

SUMS = [f"COALESCE(SUM(json_extract(usage, '$.{name}')), 0)" for name in Usage.model_fields]
"""Each number of the rows' usages, added up."""


def text(db: sqlite3.Connection, run_id: str, place: int) -> str:
    """The text of a chunk, empty where there is none."""
    row = db.execute(
        "SELECT text FROM chunks WHERE run = ? AND chunk = ?", (run_id, place)
    ).fetchone()
    return row[0] if row else ""


def spent(db: sqlite3.Connection, run_id: str, question: int, place: int) -> Usage:
    """What the call at a place has cost so far."""
    (usage,) = db.execute(
        "SELECT usage FROM steps WHERE run = ? AND question = ? AND chunk = ?",
        (run_id, question, place),
    ).fetchone()
    return Usage() if usage is None else Usage.model_validate_json(usage)


def log(db: sqlite3.Connection, run_id: str, events: Sequence[Event]) -> list[Event]:
    """Writes events behind those of the run's log; returns them with their places in it."""
    (seq,) = db.execute(
        "SELECT COALESCE(MAX(seq), -1) FROM events WHERE run = ?", (run_id,)
    ).fetchone()
    numbered = [event.model_copy(update={"seq": seq + 1 + i}) for i, event in enumerate(events)]
    db.executemany(
        "INSERT INTO events VALUES (?,?,?)",
        [(run_id, event.seq, event.model_dump_json()) for event in numbered],
    )
    return numbered


def record(row: tuple[Any, ...]) -> RunRecord:
    """A row of the table of runs."""
    run_id, created, updated, status, *parts = row
    binding, settings, source = (json.loads(part) for part in parts)
    return RunRecord(run_id, created, updated, status, binding, settings, source)
