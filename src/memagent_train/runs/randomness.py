"""Keeps the random numbers of a training apart from those of the calling program."""

import random
from collections.abc import Generator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def own_randomness() -> Generator[None]:
    """Restores the random generators afterwards: transformers seeds those of the whole process."""
    python, arrays = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
