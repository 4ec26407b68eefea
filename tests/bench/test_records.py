"""The file of records: nothing is lost, nothing comes twice, and what is damaged is said."""

import errno
import json
import logging
import os
from pathlib import Path

import pytest
from tests.bench.fakes import record

from memagent.errors import StoreCorrupt, StoreError, StoreFull, StoreReadOnly
from memagent_bench.records import RESULTS, RecordFile, every_record, read_records
from memagent_bench.systems.base import Status


def write(folder: Path, *records: object) -> Path:
    file = RecordFile(folder)
    for one in records:
        file.append(one)  # type: ignore[arg-type]
    file.close()
    return folder / RESULTS


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    one = record(0, answer='ünï 中 \u2028 \n quoted "x"', facts={"n": 1, "b": True})
    write(tmp_path, one, record(1))
    assert read_records(tmp_path) == [one, record(1)]


def test_half_a_surrogate_pair_ends_nothing(tmp_path: Path) -> None:
    write(tmp_path, record(0, answer="half \ud83d", facts={"name": "\udcff", "n": 1}), record(1))
    first, second = read_records(tmp_path)
    assert (first.answer, first.facts, second) == ("half ?", {"name": "?", "n": 1}, record(1))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("length", 0, "length must be greater than 0, got 0"),
        ("length", -5, "length must be greater than 0, got -5"),
        ("index", -3, "index must be greater than or equal to 0"),
        ("tokens", 0, "tokens must be greater than 0"),
        ("seconds", -1.0, "seconds must be greater than or equal to 0"),
        ("seconds", float("nan"), "seconds must be"),
        ("score", 1.5, "score must be less than or equal to 1"),
        ("status", "failed", "status must be 'answered', since there is a score, got 'failed'"),
    ],
)
def test_a_record_that_cannot_be_is_named_by_its_line(
    tmp_path: Path, name: str, value: object, message: str
) -> None:
    path = write(tmp_path, record(0))
    fields = json.loads(path.read_bytes()) | {name: value}
    with path.open("a") as file:
        file.write(json.dumps(fields) + "\n")
    with pytest.raises(StoreCorrupt, match=f"line 2 is not a record .*{message}"):
        read_records(tmp_path)


def test_the_last_record_of_a_key_counts_in_the_first_ones_place(tmp_path: Path) -> None:
    failed = record(0, score=None, answer=None, status=Status.FAILED)
    write(tmp_path, failed, record(1), record(0))
    assert read_records(tmp_path) == [record(0), record(1)]
    assert list(every_record(tmp_path)) == [failed, record(1), record(0)]


@pytest.mark.parametrize("cut", [1, 2, 40, -2])
def test_half_a_record_at_the_end_is_cut_off_and_said(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, record(0), record(1))
    raw = path.read_bytes()
    last = raw.rindex(b"\n", 0, -1) + 1
    kept = raw[: last + cut] if cut > 0 else raw[:cut]
    path.write_bytes(kept)
    assert read_records(tmp_path) == [record(0)], "a reader leaves out what is being written"
    with caplog.at_level(logging.WARNING, "memagent"):
        write(tmp_path, record(2))
    assert f"{len(kept) - last} bytes" in caplog.text
    assert read_records(tmp_path) == [record(0), record(2)]


def test_a_whole_record_that_lacks_its_line_end_is_kept(tmp_path: Path) -> None:
    path = write(tmp_path, record(0))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    write(tmp_path, record(1))
    assert read_records(tmp_path) == [record(0), record(1)]


def test_a_torn_line_longer_than_a_block_is_found(tmp_path: Path) -> None:
    path = write(tmp_path, record(0))
    with path.open("ab") as file:
        file.write(b'{"suite": "' + b"x" * 200_000)
    write(tmp_path)
    assert read_records(tmp_path) == [record(0)]


def test_zeros_after_a_power_cut_are_cut_off(tmp_path: Path) -> None:
    path = write(tmp_path, record(0))
    with path.open("ab") as file:
        file.write(b"\0" * 4096)
    write(tmp_path, record(1))
    assert read_records(tmp_path) == [record(0), record(1)]


@pytest.mark.parametrize(
    "damage", [b"{}\n", b"\n", b"\xff\xfe\n", b'{"suite": 1}\n', b"not json\n", b"[1]\n"]
)
def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path, damage: bytes) -> None:
    path = write(tmp_path, record(0), record(1))
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + damage + second)
    with pytest.raises(StoreCorrupt, match="line 2 is not a record"):
        read_records(tmp_path)


def test_a_folder_without_records_says_so(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="name a folder written by a benchmark"):
        read_records(tmp_path / "none")


def test_a_file_that_cannot_be_written_is_an_error_of_the_store(tmp_path: Path) -> None:
    (tmp_path / RESULTS).mkdir()
    with pytest.raises(StoreReadOnly):
        RecordFile(tmp_path)


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RecordFile(tmp_path)
    file.append(record(0))

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreFull, match="No space"):
            file.append(record(1))
    file.append(record(2))
    file.close()
    assert read_records(tmp_path) == [record(0), record(2)]
