"""A checkpoint counts only when its mark is there; halves and old ones go."""

from __future__ import annotations

from pathlib import Path

from memagent_train.runs.checkpoints import (
    discard_incomplete,
    list_checkpoints,
    mark_complete,
    prune,
)


def checkpoint(folder: Path, updates: int, step: int | None = None) -> Path:
    path = folder / f"checkpoint-{updates}"
    (path / "sub").mkdir(parents=True)
    (path / "sub" / "weights").write_bytes(b"w" * 100)
    if step is not None:
        mark_complete(path, step)
    return path


def test_only_marked_ones_count_oldest_first(tmp_path: Path) -> None:
    checkpoint(tmp_path, 20, 10)
    checkpoint(tmp_path, 4, 2)
    checkpoint(tmp_path, 100)
    (tmp_path / "checkpoint-x").mkdir()
    (tmp_path / "checkpoint-7").write_text("a file")
    assert [(one.step, one.updates) for one in list_checkpoints(tmp_path)] == [(2, 4), (10, 20)]


def test_a_damaged_mark_does_not_count(tmp_path: Path) -> None:
    for updates, mark in enumerate((b"", b"{", b"[]", b'{"step": "1"}', b'{"x": 1}')):
        (checkpoint(tmp_path, updates) / "complete").write_bytes(mark)
    assert list_checkpoints(tmp_path) == []


def test_a_file_that_was_cut_off_or_lost_is_noticed(tmp_path: Path) -> None:
    (checkpoint(tmp_path, 2, 1) / "sub" / "weights").write_bytes(b"w" * 99)
    (checkpoint(tmp_path, 4, 2) / "sub" / "weights").unlink()
    assert list_checkpoints(tmp_path) == []


def test_halves_are_removed_and_whole_ones_stay(tmp_path: Path) -> None:
    whole, half = checkpoint(tmp_path, 2, 1), checkpoint(tmp_path, 4)
    assert discard_incomplete(tmp_path) == [half]
    assert whole.exists()
    assert not half.exists()


def test_the_newest_stay(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoint(tmp_path, step * 2, step)
    prune(tmp_path, 2)
    assert [one.step for one in list_checkpoints(tmp_path)] == [2, 3]
    prune(tmp_path, 0)
    assert [one.step for one in list_checkpoints(tmp_path)] == [2, 3], "0 keeps all"


def test_no_folder_has_no_checkpoints(tmp_path: Path) -> None:
    assert list_checkpoints(tmp_path / "none") == []
    assert discard_incomplete(tmp_path / "none") == []
