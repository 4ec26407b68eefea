"""The memory of a device, when it is not enough."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from memagent_train.errors import OutOfMemory


@contextmanager
def memory_for(what: str, remedy: str) -> Generator[None]:
    """Tells torch's errors about memory as ours; everything else passes.

    Args:
        what: does not fit, if that happens.
        remedy: what to do about it.

    Raises:
        OutOfMemory: a device, or the machine, has no memory left.
    """
    try:
        yield
    except RuntimeError as error:
        # torch has a class of its own for devices only; of the machine's memory it says this.
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(
            error
        ):
            raise
        said = str(error).splitlines()[0]
        raise OutOfMemory(
            f"{what} does not fit the memory: {remedy}. torch says: {said!r}"
        ) from error
