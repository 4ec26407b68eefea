"""The store's files: for their owner alone, with errors of the operating system as `StoreError`s."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

from memagent.errors import StoreError, StoreFull, StoreReadOnly


def make_file(path: Path) -> None:
    """Makes the file with mode 0600 before SQLite would make it with the umask's (WAL files inherit it).

    Raises:
        StoreFull: there is no room for it.
        StoreReadOnly: it cannot be made.
        StoreError: its name is `:memory:`.
    """
    if path.name == ":memory:":
        raise StoreError("':memory:' would be a file of that name; None is the temporary store")
    with _translated(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def back_up(path: Path, copy: Path) -> None:
    """Copies a store as a whole; a copy that is there is replaced once the new one is complete.

    Raises:
        StoreError: the copy cannot be written.
        sqlite3.Error: likewise.
    """
    part = copy.with_name(f"{copy.name}.part")
    make_file(part)
    try:
        # By a connection of its own: SQLite copies nothing for one that is in a transaction.
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(part)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")  # one plain file
        with _translated(copy):
            part.replace(copy)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def _translated(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise StoreFull(
                f"no room to make the run store {str(path)!r}: free some space"
            ) from error
        raise StoreReadOnly(
            f"cannot write the run store {str(path)!r} ({error.strerror}): name a writable file with --store"
        ) from error
