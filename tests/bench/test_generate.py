"""Samples as files: complete or not there, readable by harnesses for RULER."""

import io
import json
import os
import stat
import sys
import threading
from pathlib import Path

import pytest
from tests.disk import full_disk

from memagent.errors import ConfigError
from memagent.tasks import Sample
from memagent_bench.generate import line, write_samples
from memagent_bench.length_tokens import length_counter
from memagent_bench.options import DataOptions
from memagent_bench.ruler.niah import NiahTask


class Small:
    """A task of short samples that fails at an index."""

    name, scorer = "small", "string_match_all"

    def __init__(self, bad: int | None = None, error: BaseException | None = None) -> None:
        self.facts: dict[str, str | int | bool] = {"haystack": "none", "rounds": 1}
        self.bad = bad
        self.error = error or ConfigError("no such sample")

    def sample(self, index: int) -> Sample:
        if index == self.bad:
            raise self.error
        return Sample(
            task="small",
            index=index,
            length=64,
            tokens=60,
            context=f"Ünit {index} \ud83d says “{index}”.",
            question="What?",
            outputs=(str(index),),
            generate=8,
            before="Rëad: ",
            after=" It is",
        )


def test_fields_are_rulers_and_the_span_is_the_document(tmp_path: Path) -> None:
    out = tmp_path / "one.jsonl"
    task = NiahTask("niah_multiquery", 1024, DataOptions(counter=length_counter(None)))
    write_samples(task, 3, out)
    rows = [json.loads(text) for text in out.read_text(encoding="utf-8").splitlines()]
    assert [row["index"] for row in rows] == [0, 1, 2]
    for i, row in enumerate(rows):
        sample = task.sample(i)
        start, end = row["context_span"]
        assert row["input"] + row["answer_prefix"] == sample.prompt
        assert row["input"].endswith("Name all of them.")
        assert row["answer_prefix"].endswith(" are")
        assert row["input"][start:end] == sample.context
        assert row["outputs"] == list(sample.outputs)
        assert row["length"] == sample.tokens <= row["max_length"] == 1024
        assert row["question"] == sample.question
        assert (row["task"], row["tokens_to_generate"]) == ("niah_multiquery", 128)
        assert row["facts"] == task.facts


def test_the_same_options_write_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        task = NiahTask("niah_multikey_2", 1024, DataOptions(counter=length_counter(None)))
        write_samples(task, 4, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_text_that_utf8_cannot_hold_is_escaped() -> None:
    text = line(Small().sample(3), "f1", Small().facts).decode("utf-8")
    assert text.endswith("\n")
    assert "Ünit 3 \\ud83d says “3”." in text
    assert json.loads(text)["input"] == Small().sample(3).prompt


@pytest.mark.parametrize("error", [ConfigError("no such sample"), KeyboardInterrupt()])
def test_what_ends_early_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    out = tmp_path / "samples.jsonl"
    with pytest.raises(type(error)):
        write_samples(Small(bad=2, error=error), 5, out)
    assert list(tmp_path.iterdir()) == []
    out.write_text("old")
    with pytest.raises(type(error)):
        write_samples(Small(bad=2, error=error), 5, out)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("samples.jsonl", "old")
    ]


def test_a_file_appears_when_it_is_complete(tmp_path: Path) -> None:
    out = tmp_path / "samples.jsonl"
    seen: list[tuple[int, bool]] = []
    write_samples(Small(), 3, out, written=lambda n: seen.append((n, out.exists())))
    assert seen == [(1, False), (2, False), (3, False)]
    assert len(out.read_bytes().splitlines()) == 3
    assert list(tmp_path.iterdir()) == [out]


def test_others_may_read_it_as_they_may_read_other_files(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        write_samples(Small(), 1, tmp_path / "samples.jsonl")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "samples.jsonl").stat().st_mode) == 0o644


def test_two_at_once_do_not_mix(tmp_path: Path) -> None:
    out = tmp_path / "samples.jsonl"
    threads = [threading.Thread(target=write_samples, args=(Small(), 200, out)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [json.loads(row)["index"] for row in out.read_bytes().splitlines()] == [*range(200)]
    assert list(tmp_path.iterdir()) == [out]


def test_a_dash_is_standard_output(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    write_samples(Small(), 2, Path("-"))
    assert [json.loads(row)["outputs"] for row in raw.getvalue().splitlines()] == [["0"], ["1"]]
    assert not Path("-").exists()


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_samples(Small(), 2, pipe)
    reader.join(10)
    assert found[0].count(b"\n") == 2
    assert not pipe.is_file()


@pytest.mark.parametrize("name", ["", "none/samples.jsonl", "file/samples.jsonl", "x" * 300])
def test_where_nothing_can_be_written_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as caught:
        write_samples(Small(), 1, tmp_path / name)
    assert repr(str(tmp_path / name)) in str(caught.value)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_is_a_typed_error() -> None:
    with pytest.raises(ConfigError, match="No space left"):
        write_samples(Small(), 1, Path("/dev/full"))


def test_a_disk_that_fills_keeps_what_was_there(tmp_path: Path) -> None:
    (out := tmp_path / "samples.jsonl").write_text("old")
    with full_disk(10_000), pytest.raises(ConfigError, match="cannot be written: File too large"):
        write_samples(Small(), 200, out)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [
        ("samples.jsonl", "old")
    ]


def test_an_error_of_the_task_is_not_called_one_of_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="of the data"):
        write_samples(Small(bad=1, error=OSError("of the data")), 2, tmp_path / "x")


@pytest.mark.parametrize("n", [0, -3])
def test_no_samples_are_refused(tmp_path: Path, n: int) -> None:
    with pytest.raises(ConfigError, match=str(n)):
        write_samples(Small(), n, tmp_path / "x")
