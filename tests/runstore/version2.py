"""Stores as version 2 wrote them (tests/data/version2), and what each of their runs comes to."""

import gzip
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data/version2"
FILES = sorted(path.name.removesuffix(".sql.gz") for path in DATA.glob("*.sql.gz"))


@dataclass(frozen=True)
class Finished:
    """What version 2 made of a run when it finished it."""

    file: str
    """Name of the dump."""
    run: str
    status: str
    """As it stands in the dump."""
    agent: str
    """`memory` or `tools`."""
    answers: tuple[str, ...]
    """One a question."""
    memories: tuple[str, ...]
    """One a question; none of a tool session."""
    stop_reasons: tuple[str, ...]
    calls: int
    """Committed calls of the whole run."""
    last_seq: int
    steps: int | None
    """Of a tool session."""
    summaries: int | None
    conversations: tuple[int, ...]
    """How many there are of each question."""


def cases() -> list[Finished]:
    """Every run of every dump (results.json)."""
    rows: list[dict[str, Any]] = json.loads((DATA / "results.json").read_text())
    fields: list[dict[str, Any]] = [
        {key: tuple(v) if isinstance(v, list) else v for key, v in row.items()} for row in rows
    ]
    return [Finished(**row) for row in fields]


def restored(file: str, folder: Path) -> Path:
    """Writes a dump as the SQLite file that it was made of."""
    folder.mkdir(exist_ok=True)
    path = folder / "runs.sqlite"
    db = sqlite3.connect(path)
    db.execute("PRAGMA synchronous = OFF")
    db.executescript(gzip.decompress((DATA / f"{file}.sql.gz").read_bytes()).decode())
    db.close()
    return path


def rows(path: Path, sql: str, *values: Any) -> list[dict[str, Any]]:
    """The rows of a query, by the names of their columns."""
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    found = [dict(row) for row in db.execute(sql, values)]
    db.close()
    return found


def content(path: Path) -> list[str]:
    """A file as SQL: two with the same lines hold the same."""
    db = sqlite3.connect(path)
    lines = list(db.iterdump())
    db.close()
    return lines
