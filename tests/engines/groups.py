"""Ends a server's process group, and removes what a killed engine cannot remove itself.

As a process, `python groups.py GROUP FOLDER` waits until its input ends, and then does the same. Its
input is a pipe from the tests: it ends with them, also when they are killed, and no server is left.

What it knows of processes is in /proc: it is for Linux, as the engines are.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from pathlib import Path

PROCESSES = Path("/proc")
SHARED_MEMORY = Path("/dev/shm")
# A killed process is gone at once, unless the machine is very busy.
KILL_LIMIT = 10.0
POLL = 0.05


def members(group: int) -> list[int]:
    """Returns the processes of a group that still run; a dead one that nobody waited for does not."""
    found: list[int] = []
    for folder in PROCESSES.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in brackets may hold anything, so count from its end.
                state, _, its_group, *_ = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(its_group) == group and state not in "ZX":
                    found.append(int(folder.name))
    return found


def shared_memory(processes: list[int]) -> set[Path]:
    """Returns the files of shared memory that these processes have mapped."""
    numbers: set[int] = set()
    for process in processes:
        with contextlib.suppress(OSError):
            for line in (PROCESSES / str(process) / "maps").read_text().splitlines():
                # By number, because a semaphore is mapped under another name, which is gone.
                *_, number, name = line.split(maxsplit=5)
                if name.startswith(f"{SHARED_MEMORY}/"):
                    numbers.add(int(number))
    with os.scandir(SHARED_MEMORY) as files:
        return {Path(file) for file in files if file.inode() in numbers}


def end(group: int, temporary: Path, grace: float = 0.0) -> None:
    """Ends every process of the group, and removes its shared memory and its temporary folder.

    Args:
        group: the group's number, which is its first process.
        temporary: the folder that the engine was given for temporary files.
        grace: seconds that the engine has to end by itself before it is killed; 0 kills at once.
    """
    held = shared_memory(members(group))
    with contextlib.suppress(ProcessLookupError):
        if grace:
            os.kill(group, signal.SIGTERM)
            wait_for_end(group, grace)
        os.killpg(group, signal.SIGKILL)
    if not wait_for_end(group, KILL_LIMIT):
        raise TimeoutError(f"processes {members(group)} still run {KILL_LIMIT} s after SIGKILL")
    for path in held:
        path.unlink(missing_ok=True)
    shutil.rmtree(temporary, ignore_errors=True)


def wait_for_end(group: int, limit: float) -> bool:
    """Returns whether the group had ended within the limit, in seconds."""
    last = time.monotonic() + limit
    while members(group):
        if time.monotonic() > last:
            return False
        time.sleep(POLL)
    return True


if __name__ == "__main__":
    sys.stdin.read()
    end(int(sys.argv[1]), Path(sys.argv[2]))
