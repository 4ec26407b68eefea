"""How the time of a piece of work grows with its size."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def growth(work: Callable[[], object], more: Callable[[], object]) -> float:
    """How many times as much processor time `more` takes as `work`.

    Each is the fastest of three, and nothing is collected meanwhile: a collection costs as much as all
    objects of the process, so what was tested before would decide.
    """
    gc.collect()
    gc.disable()
    try:
        return min(_seconds(more) for _ in range(3)) / min(_seconds(work) for _ in range(3))
    finally:
        gc.enable()


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start
