"""Atomic output: written completely or not at all."""

import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(out: Path) -> Generator[Path]:
    """Yields a new path beside `out` to write a file or folder to; it replaces `out` unless an error is raised.

    The new path's name is random, since a user's file might have a fixed one. An existing file's permissions are kept.

    Args:
        out: a file, an empty folder, a link to one, or nothing yet; its folder is created if missing. A pipe or device
            is written to directly.

    Raises:
        OSError: it can't be replaced.
    """
    if out.exists() and not out.is_file() and not out.is_dir():
        yield out
        return
    out = out.resolve()  # replaces a link's target, not the link
    # A name has 255 bytes at most.
    new_path = out.with_name(f"{out.name[:60]}.{secrets.token_hex(4)}.new")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        if out.is_file():
            new_path.touch()
            shutil.copymode(out, new_path)
        yield new_path
        if out.is_dir():
            out.rmdir()
        new_path.replace(out)
    finally:
        if new_path.is_dir():
            shutil.rmtree(new_path, ignore_errors=True)
        else:
            new_path.unlink(missing_ok=True)
