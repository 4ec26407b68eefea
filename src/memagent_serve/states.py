"""Keeps the states of shortened histories in a file, so that a restarted endpoint continues them."""

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from memagent.sqlite import BUSY_SECONDS, make_file, switch_to_wal

logger = logging.getLogger("memagent.serve")
T = TypeVar("T")

REMEMBERED = 1024
"""Maximum number of states: 32 KB each, in a window of 8192 tokens. Each turn of a conversation leaves one."""


class States:
    """The most recently used states, by digests of histories. Thread-safe; several endpoints may share a file.

    The file only saves work: if it can't be opened, states are kept until the endpoint ends; later failures to read or
    write are logged, and the history is summarised again.

    Args:
        path: the SQLite file, created with mode 0600 on first use if missing; None: a temporary file.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._mutex = path, threading.Lock()
        self._db: sqlite3.Connection | None = None

    def _open(self) -> sqlite3.Connection:
        try:
            return _connect(self._path)
        except (sqlite3.Error, OSError) as error:
            logger.warning(
                "%s can't be opened (%s), so shortened histories are kept until the endpoint ends: if nothing "
                "else needs the file, delete it",
                self._path,
                error,
            )
            return _connect(None)

    def find(self, digests: Sequence[bytes]) -> Mapping[str, Any] | None:
        """Returns the state of the last of the digests that has one."""

        def read(db: sqlite3.Connection) -> Mapping[str, Any] | None:
            stored_digests = {digest for (digest,) in db.execute("SELECT digest FROM states")}
            digest = next(
                (digest for digest in reversed(digests) if digest in stored_digests), None
            )
            query = "UPDATE states SET used = ? WHERE digest = ? RETURNING state"
            rows = db.execute(query, (time.time(), digest)).fetchall()
            return json.loads(rows[0][0]) if rows else None

        return self._try(read)

    def keep(self, digest: bytes, state: Mapping[str, Any]) -> None:
        """Keeps a state, and drops the least recently used ones."""

        def write(db: sqlite3.Connection) -> None:
            row = (digest, time.time(), json.dumps(state))
            db.execute("INSERT OR REPLACE INTO states VALUES (?,?,?)", row)
            db.execute(
                "DELETE FROM states WHERE digest IN "
                "(SELECT digest FROM states ORDER BY used DESC, rowid DESC LIMIT -1 OFFSET ?)",
                (REMEMBERED,),
            )

        self._try(write)

    def close(self) -> None:
        """Closes the file."""
        with self._mutex:
            if self._db is not None:
                self._db.close()

    def _try(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        try:
            with self._mutex:
                # On first use, which happens in a thread: opening a file would block the event loop.
                self._db = self._db or self._open()
                return work(self._db)
        except sqlite3.Error as error:
            logger.warning("a shortened history can't be kept or found again: %s", error)
            return None


def _connect(path: Path | None) -> sqlite3.Connection:
    if path is not None:
        path = path.resolve()
        make_file(path)
        # SQLite would open such a file, and fail at each use.
        if not os.access(path, os.R_OK | os.W_OK):
            raise PermissionError("it may not be read and written")
    db = sqlite3.connect(
        path or "", timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
    )
    try:
        switch_to_wal(db)
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute(
            "CREATE TABLE IF NOT EXISTS states (digest BLOB PRIMARY KEY, used REAL NOT NULL, state TEXT NOT NULL)"
        )
    except sqlite3.Error:
        db.close()
        raise
    return db
