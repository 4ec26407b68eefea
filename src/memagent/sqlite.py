"""SQLite files: made for their owner alone, with a write-ahead log."""

import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

BUSY_SECONDS = 30
"""Seconds that a writer waits for another process's transaction (each takes about a millisecond)."""


def switch_to_wal(db: sqlite3.Connection) -> None:
    """Switches a file to a write-ahead log, waiting for others that do the same. Raises SQLite's errors."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def make_file(path: Path) -> None:
    """Creates the file with mode 0600 before SQLite would create it with the umask's (WAL files inherit it)."""
    if path.exists() and not path.is_file():
        raise OSError("it is a directory or a device")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Only if it's missing: closing a file drops all locks that this process has on it, and another process would then
    # delete the log that our connections still use.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
