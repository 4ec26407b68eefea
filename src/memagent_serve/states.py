"""The states of shortened histories, kept in a file so that an endpoint that was restarted continues them."""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from memagent.errors import StoreError

logger = logging.getLogger("memagent.serve")
T = TypeVar("T")

REMEMBERED = 1024
"""States to keep: 32 KB each, in a window of 8192 tokens. Each turn of a conversation leaves one."""
BATCH = 500
"""Digests in a query; SQLite takes 32,766."""
BUSY_SECONDS = 30


class States:
    """The states used last, by digests of histories. Thread-safe; several endpoints may share a file.

    The file only saves work: what can't be read or written later is logged, and the history is summarised again.

    Args:
        path: the SQLite file, created with mode 0600 if missing; None is a temporary one.

    Raises:
        StoreError: the file can't be opened, or is another program's.
    """

    def __init__(self, path: Path | None) -> None:
        self._mutex = threading.Lock()
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._db = sqlite3.connect(
                path or "", timeout=BUSY_SECONDS, check_same_thread=False, isolation_level=None
            )
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS states (digest BLOB PRIMARY KEY, used REAL NOT NULL, state TEXT NOT NULL)"
            )
        except (sqlite3.Error, OSError) as error:
            raise StoreError(
                f"{str(path)!r}, which keeps shortened histories, can't be opened ({error}): if nothing else "
                f"needs it, delete it; the histories will be summarised again"
            ) from error

    def latest(self, digests: Sequence[bytes]) -> bytes | None:
        """The last of the digests that has a state."""

        def look() -> bytes | None:
            last_first = digests[::-1]
            for start in range(0, len(last_first), BATCH):
                batch = last_first[start : start + BATCH]
                marks = ",".join("?" * len(batch))
                query = f"SELECT digest FROM states WHERE digest IN ({marks})"
                found = {digest for (digest,) in self._db.execute(query, batch)}
                if found:
                    return next(digest for digest in batch if digest in found)
            return None

        return self._try(look)

    def find(self, digests: Sequence[bytes]) -> Mapping[str, Any] | None:
        """The state of the last of the digests that has one."""
        digest = self.latest(digests)

        def read() -> Mapping[str, Any] | None:
            query = "UPDATE states SET used = ? WHERE digest = ? RETURNING state"
            found = self._db.execute(query, (time.time(), digest)).fetchall()
            return json.loads(found[0][0]) if found else None

        return None if digest is None else self._try(read)

    def keep(self, digest: bytes, state: Mapping[str, Any]) -> None:
        """Keeps a state, and drops those that were not used for longest."""

        def write() -> None:
            row = (digest, time.time(), json.dumps(state))
            self._db.execute("INSERT OR REPLACE INTO states VALUES (?,?,?)", row)
            self._db.execute(
                "DELETE FROM states WHERE digest IN "
                "(SELECT digest FROM states ORDER BY used DESC, rowid DESC LIMIT -1 OFFSET ?)",
                (REMEMBERED,),
            )

        self._try(write)

    def close(self) -> None:
        """Closes the file."""
        with self._mutex:
            self._db.close()

    def _try(self, work: Callable[[], T]) -> T | None:
        try:
            with self._mutex:
                return work()
        except sqlite3.Error as error:
            logger.warning("a shortened history can't be kept or found again: %s", error)
            return None
