"""`memagent map`: rows, continuing, and what goes wrong."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Invoke

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


def test_a_folder_is_all_of_its_files(invoke: Invoke, docs: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.jsonl"
    done = invoke("map", str(docs), QUESTION, "--model", "extractive", "--out", str(out))
    assert done.exit_code == 0
    assert len(rows(out)) == 4


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
    second = invoke("map", str(docs / "*.txt"), QUESTION, *given, "--out", str(out))
    assert second.exit_code == 0
    assert "2 of 3 have an answer" in second.stderr + second.stdout
    assert len(rows(out)) == 3
    assert all(row["answer"] for row in rows(out))


@pytest.mark.parametrize("line", ["not JSON", "[1]", "{}"])
def test_a_file_of_something_else_is_left_alone(
    invoke: Invoke, docs: Path, tmp_path: Path, line: str
) -> None:
    (out := tmp_path / "r.jsonl").write_text(f"{line}\n")
    done = invoke("map", str(docs), QUESTION, "--model", "extractive", "--out", str(out))
    assert done.exit_code == 2
    assert "line 1 of" in done.stderr
    assert out.read_text() == f"{line}\n"


def test_no_file_is_an_error(invoke: Invoke, tmp_path: Path) -> None:
    done = invoke("map", str(tmp_path / "*.pdf"), QUESTION, "--model", "extractive")
    assert done.exit_code == 3
    assert "matches no file" in done.stderr


def test_two_at_once_are_refused(invoke: Invoke, docs: Path, tmp_path: Path) -> None:
    from memagent.runstore.lock import hold_file

    out = tmp_path / "r.jsonl"
    with hold_file(out):
        done = invoke("map", str(docs), QUESTION, "--model", "extractive", "--out", str(out))
    assert done.exit_code == 5
    assert "another process is writing" in done.stderr
