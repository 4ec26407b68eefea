"""What runs in a process of the reward pool. It imports the user's function, and nothing heavy by itself."""

from __future__ import annotations

import os
import sys
import threading
from multiprocessing import parent_process
from multiprocessing.connection import wait

from memagent.errors import ConfigError
from memagent.tasks import Sample
from memagent_train.rewards.functions import RewardFunction, describe, load_reward
from memagent_train.rewards.verdict import Verdict, read_verdict

_loaded: list[RewardFunction | ConfigError] = []
"""This process's function, or why there is none."""


def begin(spec: str) -> None:
    """Gets a new process ready. Importing the function is not part of its time limit."""
    threading.Thread(target=_end_with_parent, name="memagent-parent", daemon=True).start()
    # What the function prints, or a program that it starts, must not stand in the parent's output.
    sys.stdout.flush()
    os.dup2(2, 1)
    try:
        _loaded.append(load_reward(spec))
    except ConfigError as error:
        # An error here would end the process, and the pool would start the next one, for ever.
        _loaded.append(error)


def check() -> str:
    """Why this process has no function; empty where it has."""
    (loaded,) = _loaded
    return str(loaded) if isinstance(loaded, ConfigError) else ""


def judge(answer: str | None, sample: Sample) -> Verdict:
    """Calls the function. Whatever it raises becomes a verdict: an exception might not find its way back."""
    (function,) = _loaded
    if isinstance(function, ConfigError):
        return Verdict(None, error=str(function))
    try:
        return read_verdict(function(answer, sample))
    except BaseException as error:  # noqa: BLE001 - `sys.exit` too
        return Verdict(None, error=f"the reward function raised {describe(error)}")


def _end_with_parent() -> None:
    """Ends the process when its parent is gone, however that ended: a function that hangs would not notice."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
