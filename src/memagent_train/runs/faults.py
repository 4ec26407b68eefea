"""Translates errors of torch and the file system to memagent's."""

import errno
import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from memagent.errors import StoreFull
from memagent_engines.transformers.loading import is_out_of_memory
from memagent_train.errors import DiskFull, OutOfMemory

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
FULL_SAYS = re.compile(
    r"os error (28|27|122)\b|No space left on device|File too large|Disk quota exceeded"
)
"""Messages of libraries that write files without Python: safetensors, arrow."""
TORCH_WRITER = re.compile(r"PytorchStreamWriter|unexpected pos \d+ vs")
"""Messages of torch.save's writer, which doesn't give the cause: a file that can't be written."""


@contextmanager
def translate_faults(folder: Path) -> Generator[None]:
    """Translates a full disk and full memory to memagent's errors; all other errors pass.

    Args:
        folder: where the run writes.

    Raises:
        DiskFull: something in the folder couldn't be written for lack of space.
        OutOfMemory: a device or the machine is out of memory.
    """
    try:
        yield
    except (DiskFull, OutOfMemory):
        raise
    except (OSError, RuntimeError, MemoryError, StoreFull, SafetensorError) as error:
        _raise_ours(error, folder)
        raise


def is_full(error: BaseException) -> bool:
    """Returns whether an error means that a disk, a quota, or the maximum file size is exhausted."""
    if isinstance(error, StoreFull) or (isinstance(error, OSError) and error.errno in FULL):
        return True
    message = str(error)
    return bool(FULL_SAYS.search(message) or TORCH_WRITER.search(message))


def _raise_ours(error: Exception, folder: Path) -> None:
    chain: BaseException | None = error
    while chain is not None:  # transformers wraps torch's errors
        if is_full(chain):
            raise DiskFull(
                f"{str(folder)!r} cannot be written, the disk is full ({first_line(chain)}): free some space there "
                f"(older checkpoints, rollouts/, runs.sqlite), then run the same command again. The last complete "
                f"checkpoint is untouched"
            ) from error
        if is_out_of_memory(chain):
            raise OutOfMemory(
                f"the batch does not fit in memory ({first_line(chain)}): raise batch.micro_batches, set "
                f"batch.micro_batch_tokens, lower rollout.max_batch, shorten agent.window, switch on "
                f"resources.gradient_checkpointing, or use more devices; then run the same command again with another "
                f"--out, or remove the folder"
            ) from error
        chain = chain.__cause__ or chain.__context__


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, shortened; its class if it has no message."""
    line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return line if len(line) <= 160 else line[:159] + "…"
