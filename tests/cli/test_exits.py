import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from tests.cli.conftest import FACT, QUESTION, Invoke, Process, Started, only_json
from tests.models.chat_server import Script, say, send, slow

from memagent import errors
from memagent.cli.exits import Interrupted, Outcome, code_of, report_errors
from memagent.cli.options import Display
from memagent.cli.setup import Ask
from memagent.runstore import RunStore


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.QuestionTooLong("x"), 2),
        (errors.EmptyDocument("x"), 3),
        (errors.ServerBusy("x"), 4),
        (errors.RunBusy("x"), 5),
        (errors.LimitReached("x"), 6),
        (ZeroDivisionError("x"), 1),
    ],
)
def test_every_branch_of_the_error_tree_has_its_code(error: Exception, code: int) -> None:
    assert code_of(error) == code


def test_ctrl_c_leaves_a_run_that_resumes(
    start: Callable[..., Started],
    invoke: Invoke,
    book: Path,
    server: Script,
    served: list[str],
) -> None:
    server.default = slow(0.05)
    started = start("ask", book, QUESTION, *served)
    lines = started.lines(4)
    assert lines[3].startswith("chunk 2")
    code, _, said = started.signal(signal.SIGINT)
    run_id = lines[0].removeprefix("run ").partition(":")[0]
    assert code == 130
    assert said.startswith("interrupted.")
    assert said.endswith(f"Resume with: memagent resume {run_id}\n")
    [run] = only_json(invoke("runs", "--display", "json").stdout)
    assert (run["id"], run["status"]) == (run_id, "stopped")
    done = invoke("resume", run_id, "--display", "json")
    result = only_json(done.stdout)
    assert (done.exit_code, result["answer"], result["stop_reason"]) == (0, "hello", "answered")
    assert result["usage"]["calls"] == result["chunks"] + 1
    # At most the call in flight was sent twice.
    assert len(server.bodies) - result["usage"]["calls"] <= result["usage"]["repeated"]
    assert result["usage"]["repeated"] <= 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interruption_is_told_as_json_too(
    start: Callable[..., Started],
    book: Path,
    server: Script,
    served: list[str],
    number: signal.Signals,
) -> None:
    server.default = slow(30)
    started = start("ask", book, QUESTION, *served, "--display", "json", "--run-id", "one")
    assert server.waiting.wait(20)
    code, out, said = started.signal(number)
    assert code == 128 + number
    assert only_json(out) == {
        "error": {"type": "Interrupted", "message": "interrupted", "run_id": "one"}
    }
    assert "memagent resume one" in said
    assert server.left.wait(5)  # the call in flight was cancelled


def test_the_resume_hint_does_not_repeat_a_timeout_that_was_too_short(
    invoke: Invoke, book: Path, server: Script, served: list[str]
) -> None:
    server.default = slow(2)
    given = ("--timeout", "0.2", "--retries", "0", "--run-id", "one")
    done = invoke("ask", book, QUESTION, *served, *given)
    assert done.exit_code == 4
    assert "no answer within 0.2 s; raise timeout= (--timeout), or" in done.stderr
    assert "memagent resume one --timeout SECONDS --retries 0" in done.stderr


def test_ctrl_c_while_standard_input_is_awaited(start: Callable[..., Started]) -> None:
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE) as silence:
        assert silence.stdout is not None
        started = start("ask", "-", "q?", "--model", "extractive", stdin=silence.stdout.fileno())
        assert started.lines(1)[0].startswith("run ")
        code, _, said = started.signal(signal.SIGINT)
        silence.kill()
    assert code == 130
    assert "--document FILE" in said


def test_nobody_reads_the_output(start: Callable[..., Started], made: str) -> None:
    started = start("show", made)
    assert started.process.stdout is not None
    started.process.stdout.close()
    assert started.process.wait(20) == 141
    assert started.process.stderr is not None
    assert started.process.stderr.read() == ""
    started.process.stdout = None


def test_debug_shows_where_an_error_came_from(memagent: Process, book: Path) -> None:
    ask = ("ask", book, QUESTION)
    assert "Traceback" not in memagent(*ask).stderr
    assert "Traceback" in memagent(*ask, MEMAGENT_DEBUG="1").stderr
    assert "Traceback" not in memagent(*ask, MEMAGENT_DEBUG="0").stderr


def test_what_nobody_foresaw(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as stop, report_errors(Outcome(Display.JSON)):
        raise ZeroDivisionError("by zero")
    assert stop.value.exit_code == 1
    out, said = capsys.readouterr()
    assert json.loads(out)["error"]["type"] == "ZeroDivisionError"
    assert "MEMAGENT_DEBUG=1" in said


def test_a_package_of_an_extra_that_is_missing_is_no_bug(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as stop, report_errors(Outcome()):
        raise ModuleNotFoundError("No module named 'numpy'", name="numpy")
    assert stop.value.exit_code == 2
    assert "this command needs the extra 'bench'" in " ".join(capsys.readouterr().err.split())
    with pytest.raises(typer.Exit) as stop, report_errors(Outcome()):
        raise ModuleNotFoundError("No module named 'memagent.nothing'", name="memagent.nothing")
    assert stop.value.exit_code == 1


@pytest.mark.parametrize("code", [0, 2, 6, 7])
def test_a_command_may_end_with_a_code_of_its_own(code: int) -> None:
    with pytest.raises(typer.Exit) as stop, report_errors(Outcome()):
        raise typer.Exit(code)
    assert stop.value.exit_code == code


def test_an_interruption_before_any_run(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as stop, report_errors(Outcome()):
        raise Interrupted(signal.SIGINT)
    assert stop.value.exit_code == 130
    assert capsys.readouterr() == ("", "interrupted.\n")
    soon = Outcome(Display.JSON, store=RunStore(None), run_id="one")
    with pytest.raises(typer.Exit), report_errors(soon):
        raise Interrupted(signal.SIGINT)
    out, said = capsys.readouterr()
    assert (only_json(out)["error"]["run_id"], said) == (None, "interrupted.\n")


def test_standard_output_gets_one_object_only(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as stop, report_errors(Outcome(Display.JSON)):
        raise KeyboardInterrupt  # where no event loop is there to catch the signal
    assert stop.value.exit_code == 130
    assert only_json(capsys.readouterr().out)["error"]["type"] == "Interrupted"
    with pytest.raises(typer.Exit), report_errors(Outcome(Display.JSON, told=True)):
        raise KeyboardInterrupt
    assert capsys.readouterr().out == ""


def test_resuming_is_not_offered_while_somebody_is_at_the_run(
    memagent: Process, invoke: Invoke, book: Path, tmp_path: Path
) -> None:
    store = tmp_path / "my runs.sqlite"
    ask = ("ask", book, QUESTION, "--model", "extractive", "--run-id", "one", "--store", store)
    opened = RunStore(store)
    with opened.hold("one"):
        busy = memagent(*ask)
    opened.close()
    assert busy.returncode == 5
    assert "resume with" not in busy.stderr
    assert FACT in invoke(*ask).stdout


def test_a_terminal_that_knows_no_unicode(memagent: Process, book: Path) -> None:
    ask = ("ask", book, "What is the café?", "--model", "extractive")
    done = memagent(*ask, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "\\u00b7" in done.stdout
    assert sys.stdout is not None


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252"])
def test_json_is_valid_in_any_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("The café is 🎉 open.\n", encoding="utf-8")
    ask = ("ask", path, "Is the cafe open?", "--model", "extractive", "--run-id", "a", "--json")
    for args in (ask, ("show", "a", "--json"), ("runs", "--json")):
        done = subprocess.run(
            [sys.executable, "-m", "memagent", *map(str, args)],
            capture_output=True,
            env=os.environ | {"PYTHONIOENCODING": encoding},
            check=True,
        )
        said = json.dumps(json.loads(done.stdout.decode(encoding)), ensure_ascii=False)
        assert args[0] == "runs" or "café is 🎉 open" in said


def test_a_certificate_file_that_is_not_there_is_not_the_outputs_fault(
    memagent: Process, book: Path
) -> None:
    ask = ("ask", book, QUESTION, "--model", "openai:x", "--base-url", "https://localhost:9/v1")
    shape = ("--window", "2048", "--tokenizer", "bytes", "--display", "json")
    done = memagent(*ask, *shape, SSL_CERT_FILE="/nosuch/certificates.pem")
    assert done.returncode != 0
    assert "output cannot be written" not in done.stderr
    assert only_json(done.stdout)["error"]["message"] in done.stderr


@pytest.mark.parametrize(
    ("closed", "code", "said"),
    [
        (">&-", 1, "error: standard output is closed\n"),
        ("2>&-", 0, ""),
        ("<&-", 3, "error: standard input is closed: give a path, or send the text to -\n"),
        (">&- 2>&-", 1, ""),
    ],
)
def test_closed_standard_streams(
    book: Path, tmp_path: Path, closed: str, code: int, said: str
) -> None:
    doc = "-" if closed == "<&-" else str(book)
    command = [sys.executable, "-W", "error", "-m", "memagent", "ask", doc, QUESTION]
    line = f"{shlex.join([*command, '--model', 'extractive', '--display', 'none'])} {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)
    assert done.stdout == (f"{FACT}\n" if code == 0 else "")


@pytest.mark.parametrize("status", [404, 401])
def test_resuming_is_suggested_only_where_it_can_help(
    memagent: Process, book: Path, server: Script, served: list[str], status: int
) -> None:
    server.replies = [say("noted"), send(status, {"error": {"message": "no such model"}})]
    done = memagent("ask", book, QUESTION, *served, "--run-id", "r")
    assert done.returncode == 4
    assert ("resume with" in done.stderr) == (status == 401)  # a key can be put right, a name not


def test_a_run_resumes_without_a_file_that_cannot_be_read(invoke: Invoke, tmp_path: Path) -> None:
    (folder := tmp_path / "docs").mkdir()
    (folder / "a.txt").write_text(f"{FACT} It rained. " * 2000)
    (folder / "b.txt").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(50))
    command = ("ask", folder, QUESTION, "--model", "extractive")
    done = invoke(*command, "--run-id", "r")
    assert done.exit_code == 3
    assert done.stderr.endswith("resume with: memagent resume r\n")
    (folder / "b.txt").unlink()
    assert invoke("resume", "r", "--display", "none").stdout.startswith(FACT)


def test_no_resume_hint_after_a_resume_that_cannot_work(
    memagent: Process, book: Path, server: Script, served: list[str]
) -> None:
    server.replies = [say("noted"), send(401, {"error": {"message": "bad key"}})]
    assert memagent("ask", book, QUESTION, *served, "--run-id", "r").returncode == 4
    book.write_text("Another book. " * 2000)
    changed = memagent("resume", "r")
    assert changed.returncode == 5
    assert "resume with" not in changed.stderr


def test_the_resume_hint_keeps_limits_and_what_is_not_stored(
    start: Callable[..., Started], book: Path, server: Script, served: list[str]
) -> None:
    server.default = slow(30)
    limited = ("--durable", "--max-calls", "9")
    started = start("ask", book, QUESTION, *served, "--run-id", "r", *limited)
    assert server.waiting.wait(20)
    _, _, said = started.signal(signal.SIGINT)
    assert said.endswith("memagent resume r --durable --max-calls 9\n")
    given = Ask(doc="b", headers=["X-Key: secret"], extra_body='{"a": 1}', retries=2)
    wanted = {"header": "X-Key: …", "extra-body": '{"a": 1}', "retries": 2}
    assert {name: value for name, value in given.again() if value} == wanted


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://host/v1", None),
        ("http://a/v1,http://b/v1", None),
        ("http://user:pass@host/v1", "http://…@host/v1"),
        ("user:p@ss?word@host/v1", "…@host/v1"),
        ("http://a/v1, HTTPS://key@b/v1?key=pass", "http://a/v1,HTTPS://…@b/v1?…"),
    ],
)
def test_the_resume_hint_names_a_url_whose_secrets_are_not_stored(
    url: str, shown: str | None
) -> None:
    assert dict(Ask(doc="b", base_url=url).again()).get("base-url") == shown


@pytest.mark.parametrize("replaced", [False, True])
def test_a_store_that_is_deleted_during_the_run_is_an_error(
    start: Callable[..., Started],
    book: Path,
    tmp_path: Path,
    server: Script,
    served: list[str],
    replaced: bool,
) -> None:
    server.default = slow(0.05)
    store = tmp_path / "runs.sqlite"
    started = start("ask", book, QUESTION, *served, "--run-id", "r", "--store", store)
    started.lines(3)
    store.unlink()
    if replaced:
        store.touch()
    out, said = started.process.communicate(timeout=30)
    assert "answer: hello" in out
    assert started.process.returncode == 5
    assert said == (
        f"error: the run store {str(store)!r} was deleted or replaced during the run: run 'r' is lost\n"
    )
