"""Reward functions as users write them, good and bad. Processes of the pool import this module by its name."""

import asyncio
import ctypes
import math
import os
import sys
import threading
import time
from fractions import Fraction

import numpy as np

from memagent.tasks import Sample


def right(answer: str | None, sample: Sample) -> float:
    return float(answer == sample.outputs[0])


def by_word(answer: str | None, sample: Sample) -> object:
    """Does what the answer says."""
    values = {
        "nan": math.nan,
        "inf": math.inf,
        "text": "0.5",
        "none": None,
        "true": True,
        "fraction": Fraction(1, 4),
        "numpy": np.float32(0.5),
        "array": np.ones(3),
        "huge": 10**400,
        "mapping": {"reward": 0.5, "precision": 0.25, "unknown": None, "odd": math.nan},
        "no reward": {"precision": 0.25},
        "null reward": {"reward": None, "precision": 0.25},
        "bad figure": {"reward": 1.0, "why": "because"},
        "columns": sum(getattr(sample, "columns", {}).values()),
        "missing": answer is None,
    }
    if answer is None:
        return values["missing"]
    if answer == "raise":
        raise ValueError("no such\nanswer")
    if answer == "exit":
        sys.exit(3)
    if answer == "die":
        os._exit(7)
    if answer == "die quietly":
        os._exit(0)
    if answer == "crash":
        ctypes.string_at(0)
    if answer == "hang":
        time.sleep(3600)
    if answer in ("pid", "slow pid"):
        time.sleep(0.3 if answer == "slow pid" else 0)
        return os.getpid()
    if answer == "torch":
        return "torch" in sys.modules
    if answer == "slow":
        time.sleep(0.3)
        return 1.0
    return values[answer]


async def awaited(answer: str | None, sample: Sample) -> object:
    if answer == "hang":
        await asyncio.sleep(3600)
    if answer == "raise":
        raise TimeoutError("of its own")
    if answer == "exit":
        sys.exit(3)
    if answer == "thread":
        return threading.current_thread() is threading.main_thread()
    return {"reward": 0.5, "seen": len(sample.context)}


class Judging:
    async def __call__(self, answer: str | None, sample: Sample) -> float:
        return 0.75


judging = Judging()


def of_one(answer: str | None) -> float:
    return 0.0
