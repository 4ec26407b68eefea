"""One worker per run or folder: a lock that the operating system releases when its process dies."""

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from memagent.errors import RunBusy, StoreReadOnly

WAIT = 0.3
"""Seconds to wait for a lock: listing runs takes it for a moment, to see whether it's free."""


def lock_path(store: Path, run_id: str) -> Path:
    """Returns the lock file of a run, next to its store."""
    return store.with_name(store.name + ".locks") / f"{run_id}.lock"


def busy(run_id: str) -> RunBusy:
    """Returns the error for a run that another worker holds."""
    return RunBusy(
        f"run {run_id!r} is in use by another process or task: wait for it, or start another with --run-id"
    )


def run_lock(store: Path, run_id: str, wait: float = WAIT) -> AbstractContextManager[None]:
    """Holds a run of a store file for one process or task, waiting at most `wait` seconds for it."""
    return _hold_file(lock_path(store, run_id), busy(run_id), "--store", wait)


def hold_folder(folder: Path, file: str = "") -> AbstractContextManager[None]:
    """Holds a folder of results, or a file in it, for one process, with a hidden file that its readers don't see."""
    target = str(folder / file)
    message = f"another process is writing to {target!r}: wait for it, or use another --out"
    return _hold_file(folder / (f".{file}.lock" if file else ".lock"), RunBusy(message), "--out")


@contextmanager
def _hold_file(path: Path, busy_error: RunBusy, option: str, wait: float = 0) -> Generator[None]:
    """Holds a file. Raises `busy_error` if somebody else holds it, a `StoreReadOnly` if it can't be created."""
    try:
        path.parent.mkdir(exist_ok=True, mode=0o700)
        lock = FileLock(path, timeout=wait, mode=0o600, thread_local=False)
        holder = lock.acquire(poll_interval=0.01)
    except Timeout as error:
        raise busy_error from error
    except OSError as error:
        text = f"cannot create the lock {str(path)!r} ({error.strerror}): name a writable {option}"
        raise StoreReadOnly(text) from error
    with holder:
        yield


def remove_lock(store: Path | None, run_id: str) -> None:
    """Removes the lock file of a deleted run; the caller holds the lock."""
    if store is not None:
        lock_path(store, run_id).unlink(missing_ok=True)
