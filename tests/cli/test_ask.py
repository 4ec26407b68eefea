import gzip
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.conftest import FACT, QUESTION, Invoke, Process, only_json, run_id_of
from tests.models.chat_server import Script, say, send

EXTRACTIVE = ("--model", "extractive", "--window", "2048")
FIELDS = {
    *(
        "answer",
        "memory",
        "stop_reason",
        "partial",
        "run_id",
        "usage",
        "chunks",
        "question",
        "model",
        "document",
    ),
    "detail",
    "truncated",
}


def test_plain_prints_a_line_a_chunk_and_the_answer(memagent: Process, book: Path) -> None:
    done = memagent("ask", book, QUESTION, *EXTRACTIVE, "--gate", "update")
    assert done.returncode == 0
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("run ")
    assert f"answer: {FACT}" in lines
    chunks = [line for line in lines if line.startswith("chunk ")]
    assert [line.split()[1] for line in chunks] == [str(n) for n in range(len(chunks))]
    assert any(line.endswith("kept") for line in chunks)
    assert any("updated" in line and f"+ {FACT}" in line for line in chunks)
    assert f"run {run_id_of(done.stdout)} · {len(chunks)} chunks" in lines[-1]
    assert "\x1b" not in done.stdout


def test_json_is_one_object(memagent: Process, book: Path) -> None:
    done = memagent("ask", book, QUESTION, *EXTRACTIVE, "--display", "json")
    said = only_json(done.stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(said) == FIELDS
    assert said["answer"] == FACT
    assert FACT in said["memory"]
    assert said["stop_reason"] == "answered"
    assert said["usage"]["calls"] == said["chunks"] + 1
    assert said["model"] == "extractive"
    assert said["document"] == str(book)


def test_several_questions_in_one_pass(invoke: Invoke, book: Path) -> None:
    other = "Which clerk counted the harvest of year 299?"
    done = invoke("ask", book, QUESTION, "-q", other, *EXTRACTIVE, "--display", "json")
    said = only_json(done.stdout)
    assert set(said) == {"run_id", "results"}
    assert [one["question"] for one in said["results"]] == [QUESTION, other]
    assert {one["run_id"] for one in said["results"]} == {said["run_id"]}
    assert "year 299" in said["results"][1]["answer"]


def test_several_questions_plainly(invoke: Invoke, book: Path) -> None:
    done = invoke("ask", book, "-q", QUESTION, "-q", "Which clerk counted year 7?", *EXTRACTIVE)
    assert f"{QUESTION}\nanswer: {FACT}" in done.stdout
    assert "chunk 0 question 1" in done.stdout


def test_none_prints_the_answer_alone(memagent: Process, book: Path) -> None:
    done = memagent("ask", book, QUESTION, *EXTRACTIVE, "--display", "none")
    assert (done.stdout, done.stderr) == (f"{FACT}\n", "")


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_standard_input(memagent: Process, book: Path, pack: object) -> None:
    stdin = pack(book.read_bytes())  # type: ignore[operator]
    done = memagent("ask", "-", QUESTION, *EXTRACTIVE, "--display", "json", stdin=stdin)
    said = only_json(done.stdout)
    assert (said["answer"], said["document"]) == (FACT, "<stdin>")


def test_encoding_and_errors(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("The café of Zoë stood in Orléans.".encode("latin-1"))
    ask = ("ask", path, "Where stood the café of Zoë?", *EXTRACTIVE, "--display", "none")
    assert "Orléans" in invoke(*ask, "--encoding", "latin-1").stdout
    assert invoke(*ask, "--encoding", "utf-8").exit_code == 3
    assert "caf\ufffd" in invoke(*ask, "--encoding", "utf-8", "--errors", "replace").stdout


def test_no_question_is_a_usage_error_that_names_both_ways(memagent: Process, book: Path) -> None:
    done = memagent("ask", book)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no question")
    assert "after the document" in done.stderr
    assert "-q" in done.stderr


@pytest.mark.parametrize("command", ["ask", "estimate"])
def test_swapped_arguments_are_noticed(invoke: Invoke, book: Path, command: str) -> None:
    done = invoke(command, QUESTION, book, *EXTRACTIVE)
    assert done.exit_code == 2
    assert "did you swap DOC and QUESTION?" in done.stderr
    given = invoke("ask", "-", book.name, *EXTRACTIVE, stdin=book.read_bytes())
    assert given.exit_code == 0, given.output


@pytest.mark.parametrize("how", [("--encoding", "latin-1"), ("--errors", "replace")])
def test_a_late_byte_of_another_encoding_does_not_end_a_run(
    invoke: Invoke, book: Path, how: tuple[str, str]
) -> None:
    path = book.with_name("long.txt")
    text = book.read_bytes() * 6
    path.write_bytes(text + "The café is far.".encode("latin-1") + text)
    ask = ("ask", path, QUESTION, *EXTRACTIVE, "--display", "none", "--run-id", "late")
    done = invoke(*ask)
    assert done.exit_code == 3
    told = "resume with: memagent ask ... --run-id late --encoding NAME, or --errors replace"
    assert told in done.stderr
    branch = ("branch", "late", "--before", 5, "--display", "none", "--new-id")
    done = invoke(*branch, "early")
    assert (done.exit_code, done.stderr.partition("resume with: ")[2]) == (
        3,
        "memagent resume early --document FILE, which is the document converted to UTF-8\n",
    )
    # From now on the run is read as the options say: they aren't given again.
    assert invoke(*ask, *how, "--max-calls", 60).exit_code == 6
    assert invoke("resume", "late", "--display", "none").stdout == f"{FACT}\n"
    assert FACT in invoke("show", "late", "--quotes").stdout
    assert invoke(*branch, "again").stdout == f"{FACT}\n"
    converted = path.with_name("utf-8.txt")
    converted.write_text(path.read_text(encoding="latin-1"), encoding="utf-8")
    resumed = invoke("resume", "early", "--display", "none", "--document", converted)
    assert resumed.stdout == f"{FACT}\n"


@pytest.mark.parametrize("more", [(), ("-q", QUESTION)])
def test_a_pattern_without_quotes_is_noticed(
    invoke: Invoke, book: Path, tmp_path: Path, more: tuple[str, ...]
) -> None:
    other = tmp_path / "other.md"
    other.write_text("Another one.", encoding="utf-8")
    done = invoke("ask", book, other, *more, *EXTRACTIVE)
    assert done.exit_code == 2
    assert f"the question {str(other)!r} is a file or folder: " in done.stderr
    assert "Several files need a pattern in quotes" in done.stderr


def test_a_run_id_names_the_run_and_finds_it_again(invoke: Invoke, book: Path, made: str) -> None:
    again = ("ask", book, QUESTION, *EXTRACTIVE, "--gate", "update", "--run-id", made)
    done = invoke(*again)
    assert done.exit_code == 0
    assert f"answer: {FACT}" in done.stdout
    assert "chunk 0 " not in done.stdout  # it was read before
    assert invoke(*again, "--seed", "7").exit_code == 5


def test_a_store_of_ones_own(invoke: Invoke, book: Path, tmp_path: Path) -> None:
    store = tmp_path / "runs" / "mine.sqlite"
    done = invoke("ask", book, QUESTION, *EXTRACTIVE, "--store", store, "--durable")
    assert done.exit_code == 0
    assert run_id_of(done.stdout) in invoke("runs", "--store", store).stdout
    assert "No runs yet" in invoke("runs").stdout


@pytest.mark.parametrize(
    ("args", "code", "kind"),
    [
        (["nosuch.txt", QUESTION, *EXTRACTIVE], 3, "DocumentNotFound"),
        (["book.txt", QUESTION], 2, "NoModel"),
        (["book.txt", QUESTION, "--model", "warp:x"], 2, "ConfigError"),
        (["book.txt", QUESTION, "--model", "extractive", "--window", "700"], 2, "WindowTooSmall"),
        (["book.txt", QUESTION, "--prompts", "nosuch", *EXTRACTIVE], 2, "PromptSetError"),
        (["book.txt", QUESTION, "--store", "book.txt", *EXTRACTIVE], 5, "StoreCorrupt"),
        (["book.txt", QUESTION, "--run-id", "a/b", *EXTRACTIVE], 2, "ConfigError"),
    ],
)
def test_errors_have_codes(
    invoke: Invoke,
    book: Path,
    monkeypatch: pytest.MonkeyPatch,
    args: list[str],
    code: int,
    kind: str,
) -> None:
    monkeypatch.chdir(book.parent)
    done = invoke("ask", *args, "--display", "json")
    said = only_json(done.stdout)["error"]
    assert (done.exit_code, said["type"], said["run_id"]) == (code, kind, None)
    assert done.stderr == f"error: {said['message']}\n"
    assert "resume" not in done.stderr.removeprefix(f"error: {said['message']}")


def test_a_failing_model_leaves_a_run_to_resume(
    memagent: Process, book: Path, server: Script, served: list[str]
) -> None:
    server.replies = [say("noted"), send(401, {"error": {"message": "bad key"}})]
    done = memagent("ask", book, QUESTION, *served, "--display", "json")
    said = only_json(done.stdout)["error"]
    assert (done.returncode, said["type"]) == (4, "AuthenticationFailed")
    assert done.stderr.endswith(f"resume with: memagent resume {said['run_id']}\n")


def test_an_unusable_reply_stops_without_an_answer(
    invoke: Invoke, book: Path, server: Script, served: list[str]
) -> None:
    server.default = say("")
    done = invoke("ask", book, QUESTION, *served, "--display", "json")
    said = only_json(done.stdout)
    assert (done.exit_code, said["answer"], said["stop_reason"]) == (6, None, "unusable_reply")
    assert said["detail"] in done.stderr
    assert f"memagent resume {said['run_id']}" in done.stderr
    assert "empty" in said["detail"]


@pytest.mark.parametrize("questions", [[QUESTION], [QUESTION, "-q", "Which clerk?"]])
def test_a_limit_of_calls_stops_without_an_answer(
    memagent: Process, book: Path, questions: list[str]
) -> None:
    ask = ("ask", book, *questions, *EXTRACTIVE, "--max-calls", "3", "--display", "json")
    done = memagent(*ask)
    said = only_json(done.stdout)
    assert done.returncode == 6
    for one in said.get("results", [said]):
        assert (one["answer"], one["stop_reason"]) == (None, "limit")
        assert "calls=" in one["detail"]
    assert f"memagent resume {said['run_id']}" in done.stderr


def test_options_reach_the_agent(
    invoke: Invoke, book: Path, server: Script, served: list[str]
) -> None:
    book.write_text(book.read_text().replace("harvest", "</memory>"))
    shape = ("--cuts", "exact", "--trust", "exact")
    done = invoke("ask", book, QUESTION, *served, *shape, "--temperature", "0", "--run-id", "r")
    assert done.exit_code == 0
    assert {body["temperature"] for body in server.bodies} == {0}
    assert "The </memory> of" in server.bodies[0]["messages"][0]["content"]
    binding = only_json(invoke("show", "r", "--display", "json").stdout)["binding"]
    assert (binding["cuts"], binding["trust"]) == ("exact", "exact")
    estimated = invoke("estimate", book, QUESTION, *served, *shape, "--display", "none")
    assert int(estimated.stdout) == len(server.bodies)


def test_estimate_is_what_the_run_then_takes(invoke: Invoke, book: Path) -> None:
    said = only_json(invoke("estimate", book, QUESTION, *EXTRACTIVE, "--display", "json").stdout)
    assert said["calls_min"] == said["calls_max"] == said["chunks"] + 1
    run = only_json(invoke("ask", book, QUESTION, *EXTRACTIVE, "--display", "json").stdout)
    assert run["usage"]["calls"] == said["calls_max"]
    assert run["usage"]["prompt_tokens"] <= said["prompt_tokens"]


def test_estimate_for_people(invoke: Invoke, book: Path) -> None:
    done = invoke("estimate", book, QUESTION, *EXTRACTIVE, "--gate", "exit")
    assert done.exit_code == 0
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert rows["calls"].startswith("2 to ")
    assert rows["window"] == "2,048 tokens"
    assert (
        invoke("estimate", book, QUESTION, *EXTRACTIVE, "--display", "none")
        .stdout.strip()
        .isdigit()
    )
    assert invoke("runs", "--display", "json").stdout == "[]\n"  # nothing is kept of it
    ahead = ("--gate", "update", "--read-ahead", "4", "--temperature", "0")
    assert (
        "(calls sent ahead may be in vain)"
        in invoke("estimate", book, QUESTION, *EXTRACTIVE, *ahead).stdout
    )


def test_a_bad_value_is_named(invoke: Invoke, book: Path) -> None:
    done = invoke("ask", book, QUESTION, "--model", "extractive", "--window", "abc")
    assert done.exit_code == 2
    assert "must be a valid integer, got 'abc'" in " ".join(done.stderr.replace("│", " ").split())


def test_estimate_of_standard_input_is_refused(memagent: Process) -> None:
    done = memagent("estimate", "-", QUESTION, *EXTRACTIVE, stdin=b"text")
    assert done.returncode == 3


def test_a_wrong_encoding_is_a_document_error(invoke: Invoke, book: Path) -> None:
    for encoding in ("utf-16", "utf-32", "punycode"):
        done = invoke("ask", book, QUESTION, *EXTRACTIVE, "--encoding", encoding)
        assert done.exit_code == 3, done.stderr
        assert "--encoding" in done.stderr


def test_an_output_that_cannot_be_written_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "plain.txt"
    path.write_text("Alice married Bob in June. " * 20)
    command = [sys.executable, "-m", "memagent", "ask", str(path), "When?", "--model", "extractive"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "the output cannot be written: No space left" in done.stderr


def test_an_answer_that_was_cut_off_is_said_so(
    memagent: Process, book: Path, server: Script, served: list[str]
) -> None:
    server.default = say("Ada was born in", finish="length")
    done = memagent("ask", book, QUESTION, *served, "--run-id", "r")
    assert done.returncode == 0
    assert "\nthe reply was cut off by its token limit\n" in done.stdout
    again = memagent("resume", "r", "--json")
    found = only_json(again.stdout)
    assert (found["truncated"], found["detail"]) == (
        True,
        "the reply was cut off by its token limit",
    )
    quiet = memagent("resume", "r", "--display", "none")
    assert quiet.stdout == "Ada was born in\n"
    assert quiet.stderr == "the reply was cut off by its token limit\n"
    shown = only_json(memagent("show", "r", "--json").stdout)
    assert shown["results"][0]["truncated"] is True


def test_what_the_server_is_sent(
    memagent: Process, book: Path, server: Script, served: list[str]
) -> None:
    more = ("--header", "X-Team: red: 7", "--extra-body", '{"top_k": 20}', "--timeout", "9")
    done = memagent("ask", book, QUESTION, *served, *more, "--retries", "0")
    assert done.returncode == 0, done.stderr
    assert {headers["x-team"] for headers in server.headers} == {"red: 7"}
    assert {body["top_k"] for body in server.bodies} == {20}
    for bad in (("--header", "secret"), ("--extra-body", "[1]"), ("--extra-body", "{")):
        refused = memagent("ask", book, QUESTION, *served, *bad)
        assert refused.returncode == 2
        assert bad[0] in refused.stderr
        assert "secret" not in refused.stderr


def test_no_retry_where_none_is_wanted(
    memagent: Process, book: Path, server: Script, served: list[str]
) -> None:
    server.default = send(500, {"error": "no"})
    done = memagent("ask", book, QUESTION, *served, "--retries", "0")
    assert (done.returncode, len(server.bodies)) == (4, 1)


@pytest.mark.parametrize("command", [("ask", "book.txt", QUESTION, *EXTRACTIVE), ("runs",)])
def test_a_store_path_may_begin_with_a_tilde(
    memagent: Process, book: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    if command[0] == "runs":
        memagent("ask", book, QUESTION, *EXTRACTIVE, "--store", tmp_path / "r.sqlite")
    done = memagent(*command, "--store", "~/r.sqlite", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.sqlite").exists()
    assert not (tmp_path / "~").exists()


def test_a_store_in_memory_is_refused(memagent: Process, book: Path, tmp_path: Path) -> None:
    done = memagent("ask", book, QUESTION, *EXTRACTIVE, "--store", ":memory:")
    assert done.returncode == 5
    assert ":memory:" in done.stderr
    assert not (tmp_path / ":memory:").exists()
