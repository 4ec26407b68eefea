"""One run or folder, one worker: a lock that the operating system drops when its process dies."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from memagent.errors import RunBusy, StoreReadOnly


def lock_path(store: Path, run_id: str) -> Path:
    """The lock file of a run, beside its store."""
    return store.with_name(store.name + ".locks") / f"{run_id}.lock"


def busy(run_id: str) -> RunBusy:
    """The error for a run that somebody else holds."""
    return RunBusy(
        f"run {run_id!r} is being worked on by another process or task: wait for it, or start another with --run-id"
    )


def run_lock(store: Path, run_id: str) -> AbstractContextManager[None]:
    """Holds a run of a store file for one worker alone.

    Raises:
        RunBusy: another process, or another task of this one, is at the run.
        StoreReadOnly: the lock file cannot be made.
    """
    return _hold_file(lock_path(store, run_id), busy(run_id))


def hold_folder(folder: Path) -> AbstractContextManager[None]:
    """Holds a folder of results for one process alone.

    Raises:
        RunBusy: another process holds it.
        StoreReadOnly: the lock file cannot be made.
    """
    message = f"another process is writing to {str(folder)!r}: wait for it, or use another --out"
    return _hold_file(folder / ".lock", RunBusy(message))


def hold_file(file: Path) -> AbstractContextManager[None]:
    """Holds a file of results for one process alone, by a lock file beside it.

    Raises:
        RunBusy: another process holds it.
        StoreReadOnly: the lock file cannot be made.
    """
    message = f"another process is writing to {str(file)!r}: wait for it, or use another --out"
    return _hold_file(file.with_name(f"{file.name}.lock"), RunBusy(message))


@contextmanager
def _hold_file(path: Path, taken: RunBusy) -> Generator[None]:
    try:
        path.parent.mkdir(exist_ok=True, mode=0o700)
        lock = FileLock(path, timeout=0, mode=0o600, thread_local=False)
        lock.acquire()
    except Timeout as error:
        raise taken from error
    except OSError as error:
        raise StoreReadOnly(f"cannot make the lock file {str(path)!r}: {error.strerror}") from error
    try:
        yield
    finally:
        lock.release()


def remove_lock(store: Path | None, run_id: str) -> None:
    """Removes the lock file of a run that is gone; its caller holds the lock."""
    if store is not None:
        lock_path(store, run_id).unlink(missing_ok=True)
