"""Rows of parquet files, where pyarrow is installed, and what is said where it isn't."""

import sys
from pathlib import Path

import pytest

from memagent_bench.outside.base import BadData
from memagent_bench.outside.rows import find_files, read_rows


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [{"docid": str(n), "extra": {"a": [n]}} for n in range(100)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    found = list(read_rows(tmp_path / "a.parquet"))
    assert [row.fields for row in found] == rows
    assert found[99].where.endswith("a.parquet', row 99")


def test_a_file_that_is_no_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and more")
    with pytest.raises(BadData, match=r"a.parquet' is not a parquet file .* fetch it again"):
        list(read_rows(tmp_path / "a.parquet"))


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    (tmp_path / "a.parquet").touch()
    with pytest.raises(BadData, match=r"a.parquet' takes pyarrow: pip install pyarrow"):
        list(read_rows(tmp_path / "a.parquet"))


def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"gone.jsonl' cannot be read"):
        list(read_rows(tmp_path / "gone.jsonl"))


def test_files_are_found_in_order(tmp_path: Path) -> None:
    for name in ("b/1.jsonl", "a/2.jsonl", "a/1.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in find_files(tmp_path, [".jsonl"], "rows")] == [
        "2.jsonl",
        "1.jsonl",
    ]
    assert find_files(tmp_path / "b/1.jsonl", [".jsonl"], "rows") == [tmp_path / "b/1.jsonl"]
