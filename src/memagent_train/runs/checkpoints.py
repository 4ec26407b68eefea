"""Checkpoints of a run. Each is complete only with its `complete` file, which is written last and lists the others.

`{"step": 12, "files": {"model.safetensors": 15231271864, ...}}`: sizes in bytes, so that files truncated later
are noticed too.
"""

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from memagent.replacing import replacing

COMPLETE = "complete"
NAME = re.compile(r"checkpoint-(\d+)")
"""transformers' names of checkpoints, which count optimizer updates."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    path: Path
    step: int
    """Batches of rollouts trained on so far."""
    updates: int
    """Optimizer updates made so far."""


def list_checkpoints(folder: Path) -> list[Checkpoint]:
    """Lists the complete checkpoints in a folder, oldest first; a missing folder has none."""
    checkpoints = [_read(path) for path in list_folders(folder)]
    return sorted(
        (checkpoint for checkpoint in checkpoints if checkpoint is not None),
        key=lambda checkpoint: checkpoint.updates,
    )


def mark_complete(path: Path, step: int) -> None:
    """Writes the file that marks a checkpoint as complete, after everything else has reached the disk.

    Raises:
        OSError: the disk is full, or the folder is gone.
    """
    for file in [*path.rglob("*"), path]:
        _sync(file)
    sizes = {
        file.relative_to(path).as_posix(): file.stat().st_size
        for file in path.rglob("*")
        if file.is_file()
    }
    with replacing(path / COMPLETE) as new, new.open("w", encoding="utf-8") as opened:
        json.dump({"step": step, "files": sizes}, opened, indent=1)
        opened.flush()
        os.fsync(opened.fileno())
    _sync(path)


def discard_incomplete(folder: Path) -> list[Path]:
    """Removes partial and damaged checkpoints, and returns their paths."""
    broken = [path for path in list_folders(folder) if _read(path) is None]
    for path in broken:
        shutil.rmtree(path)
    return broken


def prune(folder: Path, keep: int) -> None:
    """Removes all but the newest `keep` complete checkpoints; 0 keeps all."""
    old_ones = list_checkpoints(folder)[:-keep] if keep else []
    for old in old_ones:
        # The mark first, so that a killed process doesn't leave a partial checkpoint marked as complete.
        (old.path / COMPLETE).unlink()
        shutil.rmtree(old.path)


def list_folders(folder: Path) -> list[Path]:
    """Lists the checkpoints in a folder, complete or not."""
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.is_dir() and NAME.fullmatch(path.name)]


def _read(path: Path) -> Checkpoint | None:
    named = NAME.fullmatch(path.name)
    try:
        mark = json.loads((path / COMPLETE).read_bytes())
        step, files = mark["step"], dict(mark["files"])
        complete = all((path / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if named is None or not isinstance(step, int) or not complete:
        return None
    return Checkpoint(path, step, int(named[1]))


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
