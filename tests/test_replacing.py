import os
import threading
from pathlib import Path

import pytest
from tests.disk import full_disk

from memagent.replacing import replacing


def fail_halfway(out: Path) -> None:
    with replacing(out) as new:
        new.write_text("half")
        raise ZeroDivisionError


def test_what_is_there_stays_until_all_is_written(tmp_path: Path) -> None:
    out = tmp_path / "new" / "rows.jsonl"
    with replacing(out) as new:
        new.write_text("one")
        assert not out.exists()
    with replacing(out) as new:
        new.write_text("two")
        assert out.read_text() == "one"
    assert out.read_text() == "two"
    with pytest.raises(ZeroDivisionError):
        fail_halfway(out)
    assert out.read_text() == "two"
    assert list(out.parent.iterdir()) == [out]


def test_a_full_disk_keeps_what_was_there(tmp_path: Path) -> None:
    (out := tmp_path / "rows.jsonl").write_text("earlier")
    with full_disk(100), pytest.raises(OSError, match="too large"), replacing(out) as new:
        new.write_text("x" * 200)
    assert out.read_text() == "earlier"
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.parametrize("mode", [0o600, 0o640])
def test_permissions_stay(tmp_path: Path, mode: int) -> None:
    (out := tmp_path / "rows.jsonl").touch(mode=mode)
    with replacing(out) as new:
        new.write_text("for few")
        assert new.stat().st_mode & 0o777 == mode
    assert out.stat().st_mode & 0o777 == mode


def test_a_link_stays(tmp_path: Path) -> None:
    (out := tmp_path / "link").symlink_to(tmp_path / "file")
    with replacing(out) as new:
        new.write_text("one")
    assert (out.is_symlink(), (tmp_path / "file").read_text()) == (True, "one")


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    found: list[str] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_text()))
    reader.start()
    with replacing(pipe) as new:
        new.write_text("one")
    reader.join(10)
    assert found == ["one"]


def test_a_folder_takes_the_place_of_an_empty_one_only(tmp_path: Path) -> None:
    (out := tmp_path / "out").mkdir()
    with replacing(out) as new:
        new.mkdir()
        (new / "file").touch()
    with pytest.raises(OSError, match="not empty"), replacing(out) as new:
        new.mkdir()
    assert list(tmp_path.rglob("*")) == [out, out / "file"]


def test_a_name_may_have_any_length(tmp_path: Path) -> None:
    out = tmp_path / ("я" * 120)
    with replacing(out) as new:
        new.write_text("one")
    assert out.read_text() == "one"
