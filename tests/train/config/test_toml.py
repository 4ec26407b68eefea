"""TOML is read with clear errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from memagent.errors import ConfigError
from memagent_train.config.toml import read_toml


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_bytes(b"\xef\xbb\xbfsteps = 3\r\n[model]\r\npath = 'x'\r\n")
    assert read_toml(file) == {"steps": 3, "model": {"path": "x"}}


def test_an_empty_file_has_no_tables(tmp_path: Path) -> None:
    (tmp_path / "a.toml").touch()
    assert read_toml(tmp_path / "a.toml") == {}


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ("steps = 3".encode("utf-16"), r"not UTF-8 \(byte 0 is 0xff\)"),
        (b"steps = ", "not TOML"),
        (b"x = " + b"[" * 100_000, "not TOML"),
    ],
)
def test_what_is_no_toml_is_named(tmp_path: Path, raw: bytes, says: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(raw)
    with pytest.raises(ConfigError, match=says) as caught:
        read_toml(file)
    assert "bad.toml" in str(caught.value)


def test_a_folder_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Is a directory"):
        read_toml(tmp_path)
    with pytest.raises(ConfigError, match="No such file"):
        read_toml(tmp_path / "none.toml")
