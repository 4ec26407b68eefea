"""JSON lines: any size, any fault."""

import gc
import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pytest
from tests.train.data.files import jsonl, rows

from memagent_train.data.columns import BadRow
from memagent_train.data.jsonl import JsonlFile, JsonlRows
from memagent_train.errors import DataError, DiskFull


def test_rows_are_read_in_any_order(tmp_path: Path) -> None:
    lines = rows(5)
    file = JsonlFile(jsonl(tmp_path / "a.jsonl", lines))
    assert [file.row(place) for place in (3, 0, 4, 1, 2)] == [lines[i] for i in (3, 0, 4, 1, 2)]
    assert file.where(3).endswith("a.jsonl', line 4")


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a": 1}\n{"a": 2}',
        b'{"a": 1}\r\n{"a": 2}\r\n',
        b'\xef\xbb\xbf{"a": 1}\n\n   \n{"a": 2}\n\n',
        b'\n{"a": 1}\n{"a": 2}\n',
    ],
)
def test_line_ends_blank_lines_and_byte_order_marks(raw: bytes, tmp_path: Path) -> None:
    (path := tmp_path / "a.jsonl").write_bytes(raw)
    file = JsonlFile(path)
    assert [file.row(place) for place in range(len(file))] == [{"a": 1}, {"a": 2}]


def test_several_files_are_one_table(tmp_path: Path) -> None:
    table = JsonlRows(
        (jsonl(tmp_path / "a.jsonl", rows(2)), jsonl(tmp_path / "b.jsonl.gz", rows(3, 2)))
    )
    assert list(table) == rows(5)
    assert table.row(4) == rows(1, 4)[0]
    assert table.where(3).endswith("b.jsonl.gz', line 2")
    assert table.name == "a.jsonl, b.jsonl.gz"


def test_every_character_comes_through(tmp_path: Path) -> None:
    row = {"document": 'Ünïcödé 日本 \U0001f600 \u2028 \u0085 \t"\\'}
    assert JsonlFile(jsonl(tmp_path / "a.jsonl", [row, json.dumps(row)])).row(1) == row
    assert JsonlFile(jsonl(tmp_path / "a.jsonl.gz", [row])).row(0) == row


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "is empty"),
        (b"\n  \n", "is empty"),
        ("{}".encode("utf-16"), "in UTF-16: save it as UTF-8"),
        (gzip.compress(b'{"a": 1}\n' * 100, mtime=0)[:-20], "truncated or damaged"),
        (b"\x1f\x8bnot gzip at all", "truncated or damaged"),
        (gzip.compress(b"", mtime=0), "is empty"),
    ],
)
def test_files_that_are_none_are_refused(raw: bytes, said: str, tmp_path: Path) -> None:
    (path := tmp_path / "a.jsonl").write_bytes(raw)
    with pytest.raises(DataError, match=said):
        JsonlFile(path)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the data file .*No such file"):
        JsonlFile(tmp_path / "none.jsonl")
    with pytest.raises(DataError, match="directory"):
        JsonlFile(tmp_path)
    with pytest.raises(DataError, match="cannot read"):
        JsonlFile(Path("a\0b"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"a": 1', "this is not JSON"),
        (b'["a"]', "this is a list, not an object"),
        (b'"a"', "this is a str"),
        (b"null", "this is a NoneType"),
        (
            b'{"a": "caf\xe9"}',
            r"byte 10 of the line is not UTF-8 \(b'\\xe9\"}'\): save the file as UTF-8",
        ),
        (b"[" * 100_000, "this is not JSON"),
    ],
)
def test_lines_that_are_none_are_told(line: bytes, said: str, tmp_path: Path) -> None:
    (path := tmp_path / "a.jsonl").write_bytes(b'{"a": 0}\n\n' + line + b'\n{"a": 2}\n')
    file = JsonlFile(path)
    with pytest.raises(BadRow, match=said):
        file.row(1)
    assert file.where(1).endswith("line 3")
    assert file.row(2) == {"a": 2}
    assert isinstance(list(JsonlRows((path,)))[1], BadRow)


def test_a_json_list_is_told(tmp_path: Path) -> None:
    (path := tmp_path / "a.json").write_text(json.dumps(rows(3), indent=1))
    with pytest.raises(BadRow, match="a single JSON list: write one entry per line"):
        JsonlFile(path).row(0)


def test_a_huge_file_takes_little_memory(tmp_path: Path) -> None:
    row = json.dumps({"document": "x" * 20_000})
    path = jsonl(tmp_path / "a.jsonl", [row] * 2000)
    tracemalloc.start()
    file = JsonlFile(path)
    assert file.row(1999) == json.loads(row)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path.stat().st_size > 40_000_000
    assert peak < 1_000_000


def test_a_file_that_is_replaced_or_cut_meanwhile(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", rows(3))
    file = JsonlFile(path)
    jsonl(tmp_path / "new", rows(3, 100)).replace(path)
    assert file.row(2) == rows(3)[2]
    cut = JsonlFile(path)
    os.truncate(path, 20)
    with pytest.raises(BadRow, match="truncated after it was opened"):
        cut.row(2)


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_files_are_closed_with_their_rows(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl.gz", rows(3))
    before = open_files()
    table = JsonlRows((path, path))
    assert open_files() == before + 2
    del table
    gc.collect()
    assert open_files() == before


def test_no_room_to_unpack_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = jsonl(tmp_path / "a.jsonl.gz", rows(3))
    full = Path("/dev/full").open("wb")  # noqa: SIM115 - what is tested closes it
    monkeypatch.setattr("memagent_train.data.jsonl.tempfile.TemporaryFile", lambda: full)
    with pytest.raises(DiskFull, match=r"No space left on device.*TMPDIR"):
        JsonlFile(path)
