"""TOML is read with clear errors, and what is written reads back the same."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.errors import ConfigError
from memagent_train.config.toml import read_toml, written

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.text() | st.integers(-(2**60), 2**60) | st.booleans() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_is_written_reads_back_the_same(tables: dict[str, Any]) -> None:
    assert tomllib.loads(written(tables)) == tables


def test_tables_and_lists_of_tables_come_as_sections() -> None:
    sources = [{"task": "vt", "weight": 0.5, "columns": {"a": "b"}}, {}]
    text = written({"steps": 3, "data": {"source": sources, "seed": 1, "mixed": [1, {"x": 2}]}})
    assert text == (
        'steps = 3\n\n[data]\nseed = 1\nmixed = [1, {x = 2}]\n\n[[data.source]]\ntask = "vt"\nweight = 0.5\n\n'
        '[data.source.columns]\na = "b"\n\n[[data.source]]\n'
    )


def test_none_cannot_be_written() -> None:
    with pytest.raises(TypeError, match="NoneType"):
        written({"a": None})


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
