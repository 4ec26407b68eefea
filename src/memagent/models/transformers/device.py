"""What torch says where memory is not enough."""

from __future__ import annotations

import re

import torch

UNALLOCATED = re.compile(
    r"out of memory|can't allocate memory|not enough memory|CUBLAS_STATUS_ALLOC_FAILED"
)
"""How torch says it: of devices other than CUDA's, and of the machine's own memory, in a plain RuntimeError."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that a device or the machine has no memory left."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or (
        isinstance(error, RuntimeError) and UNALLOCATED.search(str(error)) is not None
    )
