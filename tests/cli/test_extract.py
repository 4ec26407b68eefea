"""`memagent extract` and `memagent summarize`."""

import json
import re
from pathlib import Path

import pytest
from tests.cli.conftest import Invoke, only_json
from tests.models.chat_server import Script, say

BILLS = '''"""Rows for tests."""

from pydantic import BaseModel


class Bill(BaseModel):
    number: int
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bills.py").write_text(BILLS)
    (tmp_path / "doc.txt").write_text("Bill 7 came. Bill 8 came.")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_rows_are_written_to_a_file(
    invoke: Invoke, folder: Path, server: Script, served: list[str]
) -> None:
    server.replies = [
        say('{"number": 7}\n{"number": "eight"}'),
        say('{"number": 8}\n{"number": 7}'),
    ]
    done = invoke(
        *("extract", "doc.txt", "every bill", "--schema", "bills:Bill", "--run-id", "r"),
        *("--out", "rows.jsonl", *served),
    )
    assert done.exit_code == 0, done.output
    assert "answer: 2 rows" in done.stdout
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert [row["value"]["number"] for row in rows] == [7, 8]
    assert rows[0] | {"value": None} == {
        "value": None,
        "chunk": 0,
        "start": 0,
        "end": 25,
        "place": "doc.txt:1",
    }
    # Without a file they are printed; the run is finished, so nothing is asked again.
    printed = invoke(
        *("extract", "doc.txt", "every bill", "--schema", "bills:Bill", "--run-id", "r", *served)
    )
    assert [json.loads(line) for line in printed.stdout.splitlines() if line[:1] == "{"] == rows
    (folder / "BILL.JSON").write_text('{"properties": {"number": {"type": "integer"}}}')
    server.replies = [say('{"number": 9}'), say("none")]
    named = invoke("extract", "doc.txt", "every bill", "--schema", "BILL.JSON", *served)
    assert '"value": {"number": 9}' in named.stdout
    # A finished run is shown by other commands as any reading is.
    assert "2 rows" in invoke("resume", "r", "--display", "none").stdout
    shown = invoke("show", "r").stdout
    assert re.search(r"chunk 0: 1 duplicate\n", shown)
    assert '"number":8' in shown
    assert re.search(r"question +every bill\n", shown)
    assert "Each row is" not in shown + invoke("runs").stdout
    assert invoke("show", "r", "--html", "r.html").exit_code == 0
    chunk = invoke("show", "r", "--chunk", "0").stdout
    assert "every bill" in chunk
    assert "eight" in chunk


def test_an_extraction_is_resumed_by_the_same_command(
    invoke: Invoke, folder: Path, server: Script, served: list[str]
) -> None:
    server.default = say('{"number": 7}')
    command = ["extract", "doc.txt", "every bill", "--schema", "bills:Bill", "--run-id", "r"]
    sizes = ["--chunk-tokens", "40", *served]
    (folder / "doc.txt").write_text("Bill 7 came again. " * 9)
    stopped = invoke(*command, *sizes, "--max-calls", "2", "--out", "rows.jsonl")
    assert stopped.exit_code == 6
    assert stopped.stderr.endswith("resume with: memagent extract ... --run-id r\n")
    assert len((folder / "rows.jsonl").read_text().splitlines()) == 1
    bare = invoke(*command, *sizes, "--max-calls", "2", "--display", "none")
    assert (bare.exit_code, json.loads(bare.stdout)["value"]) == (6, {"number": 7})
    refused = invoke("resume", "r")
    assert refused.exit_code == 2
    assert "repeat `memagent extract` with --run-id r" in refused.stderr
    done = invoke(*command, *sizes, "--display", "none", "--out", "rows.jsonl")
    assert (done.exit_code, done.stdout) == (0, "1 row\n")
    assert len((folder / "rows.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("out", [(), ("--out", "rows.jsonl")])
def test_programs_get_the_rows(
    invoke: Invoke, folder: Path, server: Script, served: list[str], out: tuple[str, ...]
) -> None:
    server.default = say('{"number": 7}\n{"number": "eight"}')
    command = ("extract", "doc.txt", "every bill", "--schema", "bills:Bill", "--run-id", "r", *out)
    given = only_json(invoke(*command, *served, "--json").stdout)
    assert given["answer"] == "1 row, 1 invalid"
    assert given["question"] == "every bill"
    assert given["rows"][0]["value"] == {"number": 7}
    assert given["invalid"][0]["text"] == '{"number": "eight"}'
    bare = invoke(*command, *served, "--display", "none").stdout
    assert bare.splitlines() == (
        ["1 row, 1 invalid"] if out else [json.dumps(row) for row in given["rows"]]
    )


@pytest.mark.parametrize(
    ("schema", "out", "problem"),
    [
        ("bills:Nothing", "x", "has no class 'Nothing'"),
        ("nowhere:Bill", "x", "there is no module 'nowhere'"),
        ("bills", "x", "doesn't name a class"),
        ("json:dumps", "x", "schema must be a pydantic model"),
        ("bills:Bill", "no/x", "cannot write --out 'no/x'"),
        ("bills:Bill", ".", "it is a folder"),
    ],
)
def test_what_is_refused(
    invoke: Invoke,
    folder: Path,
    served: list[str],
    server: Script,
    schema: str,
    out: str,
    problem: str,
) -> None:
    server.default = say("[]")
    done = invoke("extract", "doc.txt", "every bill", "--schema", schema, "--out", out, *served)
    assert done.exit_code == 2
    assert problem in done.stderr


@pytest.mark.parametrize(
    ("doc", "out"),
    [
        ("doc.txt", "doc.txt"),
        ("doc.txt", "link.txt"),
        ("doc.txt", "bill.json"),
        ("doc.txt", "runs.sqlite"),
        ("*.txt", "doc.txt"),
        (".", "doc.txt"),
        (".", "rows.jsonl"),
        ("doc.txt", "runs.sqlite-wal"),
    ],
)
def test_rows_are_not_written_over_what_is_read_or_stored(
    invoke: Invoke, folder: Path, server: Script, served: list[str], doc: str, out: str
) -> None:
    (folder / "link.txt").symlink_to("doc.txt")
    (folder / "bill.json").write_text('{"properties": {"number": {"type": "integer"}}}')
    command = ("extract", doc, "every bill", "--schema", "bill.json", "--store", "runs.sqlite")
    done = invoke(*command, "--out", out, *served)
    assert done.exit_code == 2
    assert f"cannot write --out {out!r}" in done.stderr
    reason = "belongs to the run store" if "sqlite" in out else "is read, and that would change it"
    assert reason in done.stderr
    assert server.bodies == []
    assert (folder / "doc.txt").read_text() == "Bill 7 came. Bill 8 came."


@pytest.mark.parametrize(
    "command", [("summarize", "doc.txt"), ("extract", "doc.txt", "every bill")]
)
def test_rereading_is_not_offered_where_it_has_no_effect(
    invoke: Invoke, folder: Path, command: tuple[str, ...]
) -> None:
    done = invoke(*command, "--reread", "2")
    assert done.exit_code == 2
    assert "No such option: --reread" in done.stderr


@pytest.mark.parametrize(
    "command",
    [("summarize", "doc.txt"), ("extract", "doc.txt", "every bill", "--schema", "bills:Bill")],
)
def test_a_model_that_picks_sentences_is_refused(
    invoke: Invoke, folder: Path, command: tuple[str, ...]
) -> None:
    done = invoke(*command, "--model", "extractive", "--run-id", "r")
    assert done.exit_code == 2
    assert "'extractive' only picks sentences" in done.stderr
    assert "name a language model ('vllm:NAME')" in done.stderr
    assert invoke("show", "r").exit_code == 5  # nothing was begun
    text = " ".join(invoke(command[0], "--help").stdout.split())
    (offered,) = re.findall(r"--model +SPEC +(.*?) Default:", text)
    assert "nano" in offered
    assert "extractive" not in offered


@pytest.mark.parametrize("style", ["summary", "minutes"])
def test_summaries(
    invoke: Invoke, folder: Path, server: Script, served: list[str], style: str
) -> None:
    server.replies = [say("Two bills."), say("Two bills came.")]
    done = invoke("summarize", "doc.txt", "--style", style, "--display", "none", *served)
    assert (done.exit_code, done.stdout) == (0, "Two bills came.\n")
    assert "Write the new summary." in server.bodies[0]["messages"][0]["content"]
    assert ("minutes" in server.bodies[0]["messages"][0]["content"]) == (style == "minutes")
