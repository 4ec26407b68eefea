import os
from pathlib import Path

import pytest
from tests.cli.conftest import FACT, QUESTION, Invoke, Process, only_json
from tests.models.chat_server import Script, say, send

GONE = send(401, {"error": {"message": "bad key"}})


def test_a_finished_run_is_shown_without_calls(
    invoke: Invoke, book: Path, server: Script, served: list[str]
) -> None:
    asked = only_json(invoke("ask", book, QUESTION, *served, "--display", "json").stdout)
    seen = len(server.bodies), server.listings
    book.unlink()
    done = invoke("resume", asked["run_id"], "--display", "json")
    assert only_json(done.stdout) == asked
    assert (len(server.bodies), server.listings) == seen


def test_a_run_goes_on_where_it_failed(
    memagent: Process, book: Path, tmp_path: Path, server: Script, served: list[str]
) -> None:
    store = tmp_path / "my runs.sqlite"
    server.replies = [say("one"), say("two"), GONE]
    failed = memagent("ask", book, QUESTION, *served, "--run-id", "r", "--store", store)
    assert failed.returncode == 4
    assert f"memagent resume r --store '{store}'" in failed.stderr
    done = memagent("resume", "r", "--store", store)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[1] == "resumed; 2 chunks and 2 calls already done"
    assert lines[2].startswith("chunk 2 ")
    assert "answer: hello" in lines


@pytest.mark.parametrize("now", [8192, 4000, 2048])
def test_the_run_keeps_its_budget_when_the_servers_window_changes(
    invoke: Invoke, book: Path, server: Script, now: int
) -> None:
    server.serve_models({"id": "x", "max_model_len": 4000})
    server.replies = [say("one"), GONE]
    asked = ("--model", "vllm:x", "--base-url", server.url, "--tokenizer", "bytes")
    assert invoke("ask", book, QUESTION, *asked, "--run-id", "r").exit_code == 4
    server.serve_models({"id": "x", "max_model_len": now})
    done = invoke("resume", "r", "--display", "json")
    if now < 4000:
        assert done.exit_code == 2
        assert "window=4000 exceeds the 2048 tokens" in only_json(done.stdout)["error"]["message"]
        return
    assert only_json(done.stdout)["answer"] == "hello"
    assert len({body["max_tokens"] for body in server.bodies}) == 1


def test_a_run_that_stopped_at_a_limit_goes_on(invoke: Invoke, book: Path) -> None:
    asked = ("ask", book, QUESTION, "--model", "extractive", "--window", "2048")
    limited = invoke(*asked, "--run-id", "r", "--max-calls", "2")
    assert "memagent resume r (no limit of calls; --max-calls N sets one)" in limited.stderr
    again = only_json(invoke("resume", "r", "--max-calls", "5", "--display", "json").stdout)
    assert (again["stop_reason"], again["usage"]["calls"]) == ("limit", 5)
    assert invoke("resume", "r", "--max-calls", "5").exit_code == 6
    done = invoke("resume", "r", "--display", "none")
    assert (done.exit_code, done.stdout) == (0, f"{FACT}\n")


def test_each_limit_stops_a_run_and_the_others_stay(invoke: Invoke, book: Path) -> None:
    asked = ("ask", book, QUESTION, "--model", "extractive", "--window", "2048", "--run-id", "r")
    spent = ("--max-cost", "0.002", "--prompt-price", "1", "--completion-price", "2")
    limited = invoke(*asked, *spent, "--max-tokens", "900000", "--max-seconds", "90")
    assert limited.exit_code == 6
    assert "the limit cost=0.002 is reached" in limited.stderr
    left = "--max-tokens 900000 --max-seconds 90.0 --prompt-price 1.0 --completion-price 2.0"
    assert f"resume r {left} (no limit of cost; --max-cost N sets one)" in limited.stderr
    again = invoke("resume", "r", "--max-tokens", "4000")
    assert "the limit tokens=4000 is reached" in again.stderr
    again = invoke("resume", "r", "--max-seconds", "0")
    assert "the limit seconds=0.0 is reached" in again.stderr
    assert "memagent resume r --max-seconds 0.0\n" in again.stderr  # it counts anew
    bad = invoke("resume", "r", "--max-cost", "1", "--prompt-price", "1")
    assert bad.exit_code == 2
    assert "cost=1.0 needs prices; give" in bad.stderr
    assert "(--prompt-price, --completion-price)" in bad.stderr
    assert invoke("resume", "r").exit_code == 0


def test_a_file_whose_name_is_no_text(
    invoke: Invoke, tmp_path: Path, server: Script, served: list[str]
) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/bad\xff.txt"))
    path.write_text(f"{FACT}\n" * 60)
    server.replies = [say("one"), GONE]
    failed = invoke("ask", path, QUESTION, *served, "--run-id", "r")
    assert failed.exit_code == 4, failed.output
    done = invoke("resume", "r", "--display", "json")
    said = only_json(done.stdout)
    assert (said["answer"], said["document"]) == ("hello", f"{tmp_path}/bad\\udcff.txt")
    assert invoke("runs").exit_code == invoke("show", "r").exit_code == 0


def test_a_document_that_has_moved(
    invoke: Invoke, book: Path, server: Script, served: list[str]
) -> None:
    server.replies = [say("one"), GONE]
    assert invoke("ask", book, QUESTION, *served, "--run-id", "r").exit_code == 4
    moved = book.rename(book.with_name("moved.txt"))
    lost = invoke("resume", "r")
    assert lost.exit_code == 3
    assert "--document FILE" in lost.stderr.partition("resume with")[0]
    assert invoke("resume", "r", "--document", moved).exit_code == 0


def test_a_document_that_is_gone_when_the_answer_alone_is_missing(
    invoke: Invoke, book: Path, server: Script, served: list[str]
) -> None:
    whole = invoke("ask", book, QUESTION, *served, "--display", "json")
    chunks = only_json(whole.stdout)["chunks"]
    server.replies = [*[say("one")] * chunks, GONE]
    assert invoke("ask", book, QUESTION, *served, "--run-id", "r").exit_code == 4
    book.unlink()
    lost = invoke("resume", "r", "--document", book)
    assert lost.exit_code == 3
    done = invoke("resume", "r")
    assert done.exit_code == 0, done.stderr
    assert "answer: hello" in done.stdout


def test_another_server(invoke: Invoke, book: Path, server: Script, served: list[str]) -> None:
    server.replies = [GONE]
    invoke("ask", book, QUESTION, *served, "--run-id", "r")
    moved = server.url.replace("127.0.0.1", "localhost")
    assert invoke("resume", "r", "--base-url", moved).exit_code == 0
    assert server.headers[0]["host"].startswith("127.0.0.1")
    assert server.headers[-1]["host"].startswith("localhost")


def test_a_run_of_standard_input_wants_its_document_again(
    invoke: Invoke, book: Path, server: Script, served: list[str]
) -> None:
    server.replies = [say("one"), GONE]
    ask = ("ask", "-", QUESTION, *served, "--run-id", "r")
    failed = invoke(*ask, stdin=book.read_bytes())
    assert "memagent resume r --document FILE" in failed.stderr
    missing = invoke("resume", "r", "--display", "json")
    assert missing.exit_code == 3
    assert only_json(missing.stdout)["error"]["type"] == "DocumentRequired"
    other = invoke("resume", "r", "--document", "-", stdin=b"Another text. " * 500)
    assert other.exit_code == 5
    assert invoke("resume", "r", "--document", book).exit_code == 0


def test_options_of_the_document_are_remembered(
    invoke: Invoke, tmp_path: Path, server: Script, served: list[str]
) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes(("The café of Zoë stood in Orléans. " * 90).encode("latin-1"))
    server.replies = [say("one"), GONE]
    invoke("ask", path, QUESTION, *served, "--encoding", "latin-1", "--run-id", "r")
    assert invoke("resume", "r").exit_code == 0
    assert "Zoë" in server.bodies[-2]["messages"][0]["content"]


def test_a_run_that_is_not_there(invoke: Invoke, tmp_path: Path) -> None:
    assert invoke("resume", "nosuch").exit_code == 5
    for run, store in (("caf\udce9", []), ("r", ["--store", "~nobody-here/runs.sqlite"])):
        lost = invoke("resume", run, *store)
        assert (lost.exit_code, "bug" in lost.stderr) == (5, False)
    typo = tmp_path / "typo.sqlite"
    done = invoke("resume", "nosuch", "--store", typo)
    assert (done.exit_code, typo.exists()) == (5, False)


def test_a_model_of_a_python_program(invoke: Invoke, book: Path) -> None:
    from memagent import MemoryAgent, ScriptedModel
    from memagent.errors import ModelError

    model = ScriptedModel(["one", ModelError("down")], window=2048, name="mine")
    agent = MemoryAgent(model)
    with pytest.raises(ModelError):
        agent.ask(book, QUESTION, run_id="r")
    agent.close()
    done = invoke("resume", "r")
    assert done.exit_code == 2
    assert "resume it from Python" in done.stderr
    assert "resume('r')" in done.stderr


def test_plain_result_of_a_finished_run(invoke: Invoke, made: str) -> None:
    assert invoke("resume", made).stdout.startswith(f"answer: {FACT}\n")
