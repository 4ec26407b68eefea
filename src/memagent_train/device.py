"""What a device can do: arithmetic in bf16, and memory when it is not enough."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from memagent.models.transformers.loading import is_out_of_memory
from memagent_train.algorithm import OptimizerSettings
from memagent_train.errors import OutOfMemory


def in_bf16(optimizer: OptimizerSettings, *, cpu: bool) -> bool:
    """Whether passes are made in bf16.

    Args:
        optimizer: its precision is what is asked for.
        cpu: whether a GPU that is there is not used.
    """
    if optimizer.precision != "auto":
        return optimizer.precision == "bf16"
    return not cpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported()


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
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise OutOfMemory(
            f"{what} does not fit the memory: {remedy}. torch says: {said!r}"
        ) from error
