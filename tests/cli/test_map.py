"""`memagent map`: rows, continuing, and what goes wrong."""

import hashlib
import json
import os
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Invoke, Process
from tests.disk import full_disk
from tests.models.chat_server import Script, say

from memagent.cli.map import clear

QUESTION = "Whom did Natasha marry?"


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    for number in range(4):
        where = folder / "deep" if number == 3 else folder
        (where / f"{number}.txt").write_text(f"Natasha did marry Pierre{number}.\n" * 20)
    return folder


def rows(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_rows_go_to_standard_output(invoke: Invoke, docs: Path) -> None:
    done = invoke("map", str(docs / "*.txt"), QUESTION, "--model", "extractive")
    assert done.exit_code == 0
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert {Path(row["document"]).name for row in found} == {"0.txt", "1.txt", "2.txt"}
    for row in found:
        assert f"Pierre{Path(row['document']).stem}" in row["answer"]
        assert row["usage"]["calls"] == 2


def test_standard_output_has_only_rows(invoke: Invoke, docs: Path) -> None:
    (docs / "1.txt").write_bytes(b"")
    done = invoke("map", str(docs / "*.txt"), QUESTION, "--model", "extractive")
    assert done.exit_code == 6
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 3
    assert "1 document without an answer" in done.stderr


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal", ".locks/x.lock"])
def test_rows_are_not_written_to_the_store(
    invoke: Invoke, docs: Path, tmp_path: Path, end: str
) -> None:
    (tmp_path / "runs.sqlite.locks").mkdir()
    store, out = tmp_path / "runs.sqlite", f"{tmp_path / 'runs.sqlite'}{end}"
    done = invoke(*("map", docs, QUESTION, "--model", "extractive", "--store", store, "--out", out))
    assert done.exit_code == 2
    assert f"cannot write --out {out!r}: it belongs to the run store {str(store)!r}" in done.stderr


@pytest.mark.parametrize("name", ["notes[1].txt", ".notes.txt"])
def test_a_file_may_have_any_name(invoke: Invoke, docs: Path, name: str) -> None:
    (docs / name).write_text("Natasha did marry Pierre.\n")
    done = invoke("map", docs / name, QUESTION, "--model", "extractive")
    assert json.loads(done.stdout)["document"] == str(docs / name)


def test_a_folder_is_all_of_its_files(invoke: Invoke, docs: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    done = invoke("map", str(docs), QUESTION, "--model", "extractive", "--out", str(out))
    assert done.exit_code == 0
    assert len(rows(out)) == 4


@pytest.mark.parametrize("display", ["json", "none"])
def test_rows_in_a_file_leave_nothing_for_standard_output(
    invoke: Invoke, docs: Path, tmp_path: Path, display: str
) -> None:
    command = ("map", docs, QUESTION, "--model", "extractive", "--out", tmp_path / "r.jsonl")
    for _ in range(2):
        done = invoke(*command, "--display", display)
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    assert len(rows(tmp_path / "r.jsonl")) == 4


@pytest.mark.parametrize("out", [True, False])
def test_it_says_at_once_what_it_reads_and_how_to_continue(
    invoke: Invoke, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: bool
) -> None:
    command = ["map", docs, QUESTION, "--model", "extractive", "--concurrency", "3"]
    command += ["--out", tmp_path / "r.jsonl"] if out else []
    with monkeypatch.context() as patch:
        stop = partial(signal.raise_signal, signal.SIGINT)
        patch.setattr("memagent.cli.map.drive", lambda work: (work.close(), stop()))
        stopped = invoke(*command)
    assert (stopped.exit_code, stopped.stdout) == (130, "")
    said = "reading 4 documents, 3 at a time\ninterrupted. Resume with: the same command\n"
    assert stopped.stderr == said
    assert invoke(*command).exit_code == 0
    alone = invoke("map", docs / "1.txt", QUESTION, "--model", "extractive")
    assert alone.stderr == "reading 1 document\n"


def test_it_continues_where_it_stopped(invoke: Invoke, docs: Path, tmp_path: Path) -> None:
    out, given = tmp_path / "r.jsonl", ("--model", "extractive")
    (docs / "1.txt").write_bytes(b"")
    first = invoke("map", str(docs / "*.txt"), QUESTION, *given, "--out", str(out))
    assert first.exit_code == 6
    assert "1 document without an answer" in first.stderr + first.stdout
    assert [row["answer"] is None for row in rows(out)].count(True) == 1
    (docs / "1.txt").write_text("Natasha did marry Pierre1.\n")
    whole = out.read_text()
    out.write_text(whole + '{"document": "torn')  # killed while it wrote
    out.chmod(0o600)
    (beside := tmp_path / "r.jsonl.new").write_text("precious")
    second = invoke("map", str(docs / "*.txt"), QUESTION, *given, "--out", str(out))
    assert second.exit_code == 0
    assert "2 of 3 have an answer" in second.stderr + second.stdout
    assert len(rows(out)) == 3
    assert all(row["answer"] for row in rows(out))
    assert (out.stat().st_mode & 0o777, beside.read_text()) == (0o600, "precious")
    assert not [path for path in tmp_path.glob(".*") if path.name != ".r.jsonl.lock"]


def test_a_full_disk_keeps_all_rows(invoke: Invoke, docs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    out = folder / "r.jsonl"
    invoke("map", docs, QUESTION, "--model", "extractive", "--out", out)
    done = [row["run_id"] for row in rows(out)]
    out.write_text(whole := out.read_text() + '{"document": "torn')
    with full_disk(100), pytest.raises(OSError, match="File too large"):
        clear(out, done)
    assert out.read_text() == whole
    assert {path.name for path in folder.iterdir()} == {"r.jsonl", ".r.jsonl.lock"}


@pytest.mark.parametrize("pattern", ["*.pdf", "~nobody-here/*.md"])
def test_no_file_is_an_error(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pattern: str
) -> None:
    monkeypatch.chdir(tmp_path)
    done = invoke("map", pattern, QUESTION, "--model", "extractive")
    assert done.exit_code == 3
    assert "matches no file" in done.stderr


@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize(
    "text", ['{"name": "a"}', '{"document": "a", "pages": 3}', "[1]", "{}", "é"]
)
def test_a_file_of_something_else_is_left_alone(
    invoke: Invoke, docs: Path, tmp_path: Path, text: str, end: str
) -> None:
    text += end
    (out := tmp_path / "package.json").write_text(text, encoding="latin-1")
    done = invoke("map", docs, QUESTION, "--model", "extractive", "--out", out)
    assert done.exit_code == 2
    assert "line 1 of" in done.stderr
    assert out.read_text(encoding="latin-1") == text


def test_a_whole_last_row_without_a_newline_is_kept(
    invoke: Invoke, docs: Path, tmp_path: Path
) -> None:
    command = ("map", docs, QUESTION, "--model", "extractive", "--out", tmp_path / "r.jsonl")
    invoke(*command)
    whole = (tmp_path / "r.jsonl").read_text()
    (tmp_path / "r.jsonl").write_text(whole.removesuffix("\n"))
    done = invoke(*command)
    assert "4 of 4 have an answer" in done.stdout + done.stderr
    assert (tmp_path / "r.jsonl").read_text() == whole


def test_rows_of_another_question_stay_and_do_not_count(
    invoke: Invoke, docs: Path, tmp_path: Path
) -> None:
    out, given = tmp_path / "r.jsonl", ("--model", "extractive", "--out", tmp_path / "r.jsonl")
    (docs / "1.txt").write_bytes(b"")
    invoke("map", docs, QUESTION, *given)
    before = out.read_text()
    other = invoke("map", docs, "Which Pierre was it?", *given)
    assert "have an answer" not in other.stdout + other.stderr
    assert out.read_text().startswith(before)
    assert len(rows(out)) == 8
    again = invoke("map", docs, QUESTION, "--window", "4096", *given)
    assert "have an answer" not in again.stdout + again.stderr
    assert len(rows(out)) == 12


def test_a_document_that_changed_is_answered_anew(
    invoke: Invoke, docs: Path, tmp_path: Path
) -> None:
    out, given = tmp_path / "r.jsonl", ("--model", "extractive", "--out", tmp_path / "r.jsonl")
    invoke("map", docs, QUESTION, *given)
    invoke("map", docs, "Which Pierre was it?", *given)
    (docs / "1.txt").write_text("Natasha did marry Boris.\n")
    done = invoke("map", docs, QUESTION, *given)
    assert "3 of 4 have an answer" in done.stdout + done.stderr
    assert len(rows(out)) == 8
    answers = [row["answer"] for row in rows(out) if row["question"] == QUESTION]
    assert [answer for answer in answers if "Pierre1" in answer] == []
    assert answers[-1] == "Natasha did marry Boris."


def test_a_file_name_need_not_be_utf8(invoke: Invoke, tmp_path: Path) -> None:
    (docs := tmp_path / "docs").mkdir()
    name = os.fsdecode(b"b\xff.txt")
    try:
        (docs / name).write_text("Natasha did marry Pierre.\n")
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    command = ("map", docs, QUESTION, "--model", "extractive")
    assert json.loads(invoke(*command).stdout)["document"] == str(docs / name)
    assert invoke(*command, "--out", tmp_path / "r.jsonl").exit_code == 0
    assert "1 of 1 have an answer" in invoke(*command, "--out", tmp_path / "r.jsonl").stdout


def test_its_own_files_are_no_documents(
    invoke: Invoke, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(docs)
    command = ("map", ".", QUESTION, "--model", "extractive", "--out", "deep/../r.jsonl")
    invoke(*command)
    assert "4 of 4 have an answer" in invoke(*command).stdout
    assert len(rows(docs / "r.jsonl")) == 4
    (docs / "r.jsonl").unlink()
    done = invoke("ask", ".", QUESTION, "--model", "extractive", "--display", "none")
    assert (done.exit_code, done.stderr) == (0, "")


def test_out_may_be_a_link(invoke: Invoke, docs: Path, tmp_path: Path) -> None:
    from memagent.runstore.lock import hold_folder

    (link := tmp_path / "link.jsonl").symlink_to(out := tmp_path / "r.jsonl")
    command = ("map", docs, QUESTION, "--model", "extractive", "--out", link)
    with hold_folder(tmp_path, out.name):
        refused = invoke(*command)
    assert refused.exit_code == 5
    assert "another process is writing" in refused.stderr
    assert invoke(*command).exit_code == invoke(*command).exit_code == 0
    assert link.is_symlink()
    assert len(rows(out)) == 4


@pytest.mark.timeout(60)
def test_out_may_be_a_pipe(invoke: Invoke, memagent: Process, docs: Path, tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    command = ("map", docs, QUESTION, "--model", "extractive", "--out")
    for _ in range(2):
        with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
            assert invoke(*command, pipe).exit_code == 0
            assert reader.stdout is not None
            assert len(reader.stdout.readlines()) == 4
    done = memagent(*command, "/dev/stdout")  # which is a pipe, too
    assert (done.returncode, done.stdout.count('{"document": ')) == (0, 4), done.stderr


def test_out_is_not_standard_output(
    invoke: Invoke, docs: Path, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mapped = invoke("map", docs, QUESTION, "--model", "extractive", "--out", "-")
    for done in (mapped, invoke("show", made, "--html", "-")):
        assert done.exit_code == 2
        assert "-': that would be a file, not standard output; name another" in done.stderr
    assert not (tmp_path / "-").exists()


def test_an_empty_path_is_not_the_current_folder(
    invoke: Invoke, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(docs)
    for command in ("map", "ask", "estimate"):
        done = invoke(command, "", QUESTION, "--model", "extractive")
        assert done.exit_code == 3
        assert "the document's path is empty" in done.stderr


def test_out_is_no_folder(invoke: Invoke, docs: Path) -> None:
    done = invoke("map", docs, QUESTION, "--model", "extractive", "--out", docs)
    assert done.exit_code == 2
    assert "it is a folder; name another file" in done.stderr
    assert not docs.with_name(".docs.lock").exists()


@pytest.mark.parametrize("out", [True, False])
def test_each_document_is_hashed_once(
    invoke: Invoke, docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: bool
) -> None:
    hashed, real = list[str](), hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda file, name: (hashed.append(file.name), real(file, name))[1]
    )
    command = ["map", docs, QUESTION, "--model", "extractive"]
    command += ["--out", tmp_path / "r.jsonl"] if out else []
    assert invoke(*command).exit_code == 0
    assert sorted(hashed) == sorted(map(str, docs.rglob("*.txt")))


def test_no_question_names_this_command(invoke: Invoke, docs: Path) -> None:
    done = invoke("map", docs)
    assert done.exit_code == 2
    assert "memagent ask" not in done.stderr
    assert "-q" not in done.stderr


def test_a_cut_off_answer_is_said_to_be_one(
    memagent: Process, docs: Path, server: Script, served: list[str], tmp_path: Path
) -> None:
    server.default = say("Natasha did", finish="length")
    done = memagent("map", docs / "1.txt", QUESTION, *served, "--out", "r.jsonl")
    told = "Natasha did; the reply was cut off by its token limit"
    assert (done.returncode, told in done.stdout) == (0, True)
    (row,) = rows(tmp_path / "r.jsonl")
    assert (row["truncated"], row["detail"]) == (True, told.partition("; ")[2])
