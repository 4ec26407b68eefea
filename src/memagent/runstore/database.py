"""The run store's SQLite file: opening, checking, transactions, translated errors."""

import errno
import os
import sqlite3
import threading
import weakref
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memagent.errors import StoreCorrupt, StoreError, StoreFull, StoreReadOnly, StoreTooNew
from memagent.runstore.schema import APPLICATION_ID, SCHEMA, VERSION
from memagent.sqlite import BUSY_SECONDS, make_file, switch_to_wal


class Database:
    """One SQLite connection behind a mutex; SQLite's errors become `StoreError`s.

    Without a path it is a temporary SQLite database: on disk beyond a small cache, deleted on close.
    """

    def __init__(self, path: Path | None, *, durable: bool) -> None:
        self._where = f"the run store {str(path)!r}" if path else "the temporary run store"
        self._mutex = threading.RLock()
        self._pid = os.getpid()
        self._frozen = False
        with self._hold():
            place: str | Path = path or ""
            if path is not None:
                if path.name == ":memory:":
                    raise StoreError("':memory:' would name a file; None is a temporary store")
                make_file(path)
                # A log can't be made here. Without one nobody is writing now, so the file can be viewed as it is.
                self._frozen = not (os.access(path.parent, os.W_OK) or Path(f"{path}-wal").exists())
                place = f"{path.as_uri()}?mode=ro&immutable=1" if self._frozen else path
            self._db = sqlite3.connect(
                place, BUSY_SECONDS, isolation_level=None, check_same_thread=False, uri=self._frozen
            )
            try:
                self._prepare(durable, temporary=path is None)
            except BaseException:
                self._db.close()
                raise
        # Readers of the file, such as a result's trajectory, may outlive the store object.
        weakref.finalize(self, self._db.close)

    def close(self) -> None:
        """Closes the file."""
        with self._mutex:
            self._db.close()

    def read(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Returns all rows of a query."""
        with self._hold():
            return self._db.execute(sql, values).fetchall()

    @contextmanager
    def write(self) -> Generator[sqlite3.Connection]:
        """Opens a transaction, committed as a whole or not at all."""
        with self._hold():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self._db.execute("COMMIT")
            except BaseException:
                # A full disk makes SQLite roll back by itself; rolling back twice would hide the cause.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    @contextmanager
    def _hold(self) -> Generator[None]:
        """Holds the connection, and translates its errors."""
        # SQLite connections do not survive a fork, and a second one to the same file would share their state.
        if self._pid != os.getpid():
            raise StoreError(
                f"{self._where} was opened before this process was forked: close it before the fork, "
                f"or start processes with 'spawn'"
            )
        try:
            with self._mutex:
                yield
        except sqlite3.ProgrammingError as error:
            raise StoreError(f"{self._where} is closed") from error
        except (sqlite3.DatabaseError, OSError) as error:
            problem = _translate(error, self._where)
            if self._frozen and isinstance(problem, StoreCorrupt):
                problem = StoreError(f"{self._where} is damaged, or changed meanwhile: try again")
            raise problem from error

    def _prepare(self, durable: bool, *, temporary: bool) -> None:
        # One statement, since another process may be creating the same file.
        application, version, tables = self._db.execute(
            "SELECT application_id, user_version, (SELECT COUNT(*) FROM sqlite_master) "
            "FROM pragma_application_id, pragma_user_version"
        ).fetchone()
        if application != APPLICATION_ID and (application or version or tables):
            raise StoreCorrupt(f"{self._where} is another program's file: name another --store")
        if version > VERSION:
            raise StoreTooNew(
                f"{self._where} was written by a newer memagent (store version {version}, this one reads "
                f"{VERSION}): upgrade memagent, or name another --store"
            )
        if application == APPLICATION_ID and version < VERSION:
            raise StoreError(
                f"{self._where} was written by a checkout older than memagent 0.2.0 (store version {version}, this one "
                f"reads {VERSION}): name another --store, or finish its runs with the checkout that wrote it"
            )
        if not temporary:  # that one has no log
            switch_to_wal(self._db)
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._db.execute("PRAGMA foreign_keys = ON")
        # A checkpoint waits for the disk. 16 MB of log make one in about 400 chunks; SQLite's default, one in 100.
        self._db.execute("PRAGMA wal_autocheckpoint = 4000")
        if version < VERSION:
            with self.write() as db:
                for statement in SCHEMA:
                    db.execute(statement)


def _translate(error: sqlite3.DatabaseError | OSError, store: str) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) or 0
    primary = code & 0xFF
    # The last: the log's index can't grow, which is the first thing to fail when a store is opened.
    full_codes = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE)
    if code in full_codes or getattr(error, "errno", 0) in (errno.ENOSPC, errno.EDQUOT):
        return StoreFull(
            f"no room to write {store} ({error}): free some space and resume; committed steps are intact"
        )
    refused = primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
    if refused or isinstance(error, OSError):
        return StoreReadOnly(f"cannot write {store} ({error}): name a writable file with --store")
    if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreCorrupt(f"{store} is damaged or not a run store ({error}): use another --store")
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreError(f"{store} is locked by another process; try again later")
    if primary == sqlite3.SQLITE_IOERR:
        return StoreError(f"{store}: {error}: check its disk, or name another --store")
    return StoreError(f"{store}: {error}")
