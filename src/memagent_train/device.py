"""What a device supports: bf16 arithmetic, and errors when memory runs out."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import torch

from memagent_engines.transformers.loading import is_out_of_memory
from memagent_train.algorithm import OptimizerSettings
from memagent_train.errors import OutOfMemory


def in_bf16(optimizer: OptimizerSettings, *, cpu: bool) -> bool:
    """Whether passes use bf16.

    Args:
        optimizer: has the requested precision.
        cpu: whether to ignore a GPU.
    """
    if optimizer.precision != "auto":
        return optimizer.precision == "bf16"
    return not cpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported()


@contextmanager
def memory_for(what: str, remedy: str) -> Generator[None]:
    """Translates torch's out-of-memory errors to ours; everything else passes.

    Args:
        what: what does not fit, if that happens.
        remedy: what to do about it.

    Raises:
        OutOfMemory: a device or the machine is out of memory.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        said = (str(error) or type(error).__name__).splitlines()[0]
        raise OutOfMemory(
            f"{what} does not fit in memory: {remedy}. torch says: {said!r}"
        ) from error
