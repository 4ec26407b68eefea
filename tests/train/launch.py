"""Trainings in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

from memagent_train.runs.processes import leave_group

TWO = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")


def variables(**more: str) -> dict[str, str]:
    """The environment of a process that finds the modules of this one, and uses one core."""
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)} | more


def run_two(*arguments: object, **environment: str) -> str:
    """Runs a script, or `-m` and a module, as two processes that train together; returns what they said."""
    done = subprocess.run(
        [*TWO, *map(str, arguments)],
        env=variables(**environment),
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def leave() -> None:
    """Ends a process of several as a training does, once nothing else holds its group.

    Fails if one of the group's threads is left: a thread that wants Python's lock at the interpreter's end aborts the
    process (about 1 training in 3, where groups were left open).
    """
    tasks = Path("/proc/self/task")
    if before := _threads(tasks):
        assert any("gloo" in name for name in before), before
    leave_group()
    after = _threads(tasks)
    assert not any("gloo" in name for name in after), after


def _threads(tasks: Path) -> list[str]:
    """Their names; none where the system doesn't tell."""
    return [file.read_text().strip() for file in tasks.glob("*/comm")]
