"""Output that is there as a whole or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


@contextmanager
def replacing(out: Path) -> Generator[Path]:
    """A new path beside `out` to write a file or folder to; at the end it replaces `out`, unless an error is raised.

    Its name is random, since a fixed one may be that of a user's file.

    Args:
        out: a file, an empty folder, a link to one, or nothing yet; its folder is created if missing. A pipe or device
            is written to as it is.

    Raises:
        OSError: it can't be replaced.
    """
    if out.exists() and not out.is_file() and not out.is_dir():
        yield out
        return
    out = out.resolve()  # a link stays
    new = out.with_name(f"{out.name}.{uuid4().hex[:8]}.new")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        yield new
        if out.is_dir():
            out.rmdir()
        new.replace(out)
    finally:
        if new.is_dir():
            shutil.rmtree(new, ignore_errors=True)
        else:
            new.unlink(missing_ok=True)
