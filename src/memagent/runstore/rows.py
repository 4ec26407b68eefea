"""Rows of the run store, within a transaction that the caller holds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from memagent.events import Event
from memagent.messages import Usage
from memagent.runstore.records import RunRecord

SUMS = ", ".join(
    f"COALESCE(SUM(json_extract(usage, '$.{name}')), 0)" for name in Usage.model_fields
)
"""Each number of the rows' usages, added up."""


def record(row: tuple[Any, ...]) -> RunRecord:
    """A row of the table of runs."""
    run_id, created, updated, status, *parts = row
    return RunRecord(run_id, created, updated, status, *map(json.loads, parts))


def log(db: sqlite3.Connection, run_id: str, events: Sequence[Event]) -> list[Event]:
    """Writes events behind those of the run's log; returns them with their places in it."""
    (seq,) = db.execute(
        "SELECT COALESCE(MAX(seq), -1) FROM events WHERE run = ?", (run_id,)
    ).fetchone()
    numbered: list[Event] = []
    for place, event in enumerate(events, start=seq + 1):
        numbered.append(event.model_copy(update={"seq": place}))
        row = (run_id, place, numbered[-1].model_dump_json())
        db.execute("INSERT INTO events VALUES (?,?,?)", row)
    return numbered


def spent(db: sqlite3.Connection, place: tuple[str, str, int], usage: Usage) -> str:
    """A usage as JSON, with what was spent on the effect before.

    Args:
        db: in a transaction.
        place: run, kind and number of the effect.
        usage: what is added.
    """
    found = db.execute(
        "SELECT usage FROM effects WHERE run = ? AND kind = ? AND number = ? AND usage IS NOT NULL",
        place,
    ).fetchone()
    if found is not None:
        usage += Usage.model_validate_json(found[0])
    return usage.model_dump_json(exclude_defaults=True)


def to_json(body: dict[str, Any]) -> str:
    """The body of an effect as it is stored."""
    # Most scripts are not ASCII, and an escape takes six bytes. Half a surrogate pair needs one: SQLite refuses it.
    text = json.dumps(body, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(body)
    return text
