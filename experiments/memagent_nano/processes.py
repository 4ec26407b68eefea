"""Python processes that do a stage's work, one core each. They are ended when this process is interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from memagent_nano.errors import StageFailed

EXPERIMENTS = str(Path(__file__).parents[1])
TOLD = 12
"""Lines of a log shown in an error."""
PATIENCE = 30.0
"""Seconds that interrupted processes have to end. A training ends at once; closing its resources may take a while."""

_children: set[subprocess.Popen[bytes]] = set()
_lock = threading.Lock()
_ending = threading.Event()


def python(log: Path, module: str, *arguments: str) -> None:
    """Runs a module in its own process, on one core. Blocks until it ends.

    Args:
        log: its output is appended to this file.
        module: such as `memagent_train`.
        arguments: arguments of its command line.

    Raises:
        StageFailed: the process failed, or was ended.
    """
    with log.open("ab") as opened:
        begun = opened.tell()
        child = _start([sys.executable, "-m", module, *arguments], opened.fileno())
        try:
            code = child.wait()
        finally:
            with _lock:
                _children.discard(child)
    if code:
        what = " ".join((module, *arguments[:1]))
        how = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
        raise StageFailed(
            f"`python -m {what}` {how}; the end of {str(log)!r}:\n{_end(log, begun)}\n"
            f"Fix what it reports, and run the same command again: it resumes from what is there"
        )


@contextmanager
def stop_children_on_signals() -> Generator[None]:
    """Ends running processes when an interruption (`KeyboardInterrupt`) ends the block, and starts no more.

    An error of another kind leaves other processes alone.
    """
    _ending.clear()
    try:
        yield
    except KeyboardInterrupt:
        _end_all()
        raise


def _start(command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
    """Starts a process in its own group: a terminal's Ctrl-C reaches it only through this process, and once."""
    path = [EXPERIMENTS, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)}
    with _lock:
        if _ending.is_set():
            raise StageFailed("interrupted: nothing more is begun")
        child = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, process_group=0
        )
        _children.add(child)
    return child


def _end_all() -> None:
    """Ends all processes and waits for them; kills those that don't end in time."""
    with _lock:
        _ending.set()
        children = list(_children)
    for child in children:
        # SIGTERM: shells that start this in the background have SIGINT ignored in all its processes.
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGTERM)
    for child in children:
        try:
            child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)


def _end(log: Path, begun: int) -> str:
    """Returns the last lines written after an offset."""
    with log.open("rb") as opened:
        opened.seek(begun)
        lines = opened.read().decode("utf-8", "replace").rstrip().splitlines()
    return "\n".join(f"  {line}" for line in lines[-TOLD:]) or "  (it said nothing)"
