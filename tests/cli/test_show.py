from pathlib import Path

import pytest
from pydantic import BaseModel
from tests.cli.conftest import FACT, QUESTION, Invoke, only_json
from tests.models.chat_server import Script, say

from memagent import Limits, MemoryAgent, RunStore, ScriptedModel


def test_a_run_as_differences(invoke: Invoke, made: str, book: Path) -> None:
    done = invoke("show", made)
    assert done.exit_code == 0
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[:9])
    assert rows["run"] == f"{made}, finished"
    assert rows["document"] == str(book)
    assert rows["question"] == QUESTION
    assert rows["model"] == "extractive, prompt set plain"
    assert "window 2,048" in rows["budget"]
    assert f"  + {FACT}" in done.stdout.splitlines()
    assert "kept" in done.stdout
    assert done.stdout.endswith(f"\nanswer: {FACT}\n")


def test_json_has_every_event(invoke: Invoke, made: str, book: Path) -> None:
    said = only_json(invoke("show", made, "--display", "json").stdout)
    (result,) = said["results"]
    assert (result["answer"], result["document"]) == (FACT, str(book))
    assert [event["seq"] for event in said["events"]] == list(range(len(said["events"])))
    assert said["events"][-1]["answer"] == FACT
    assert result["usage"]["calls"] > 5
    assert invoke("show", made, "--display", "none").stdout == f"{FACT}\n"


def test_one_question_of_several(invoke: Invoke, book: Path) -> None:
    questions = ("-q", QUESTION, "-q", "Which clerk counted year 7?")
    invoke("ask", book, *questions, "--model", "extractive", "--run-id", "two")
    both = invoke("show", "two").stdout
    assert f"question 0: {QUESTION}" in both
    assert "question 1: Which clerk" in both
    one = invoke("show", "two", "--question", "1").stdout
    assert f"question 0: {QUESTION}" not in one
    assert "question 1: Which clerk" in one
    assert invoke("show", "two", "--question", "2").exit_code == 2
    told = invoke("show", "two", "--question", "1", "--display", "json")
    events = only_json(told.stdout)["events"]
    assert {event.get("question", 1) for event in events} == {1}
    steps = only_json(invoke("show", "two", "--chunk", "0", "--display", "json").stdout)["steps"]
    assert [step["question"] for step in steps] == [0, 1]


def test_quotes_of_the_document(invoke: Invoke, book: Path) -> None:
    other = "Which clerk counted year 7?"
    invoke("ask", book, "-q", QUESTION, "-q", other, "--model", "extractive", "--run-id", "two")
    both = invoke("show", "two", "--quotes").stdout.splitlines()
    assert both[0] == f"question 0: {QUESTION}"
    line = book.read_text().splitlines().index(FACT) + 1
    assert both[1] == f"1.00 {book.name}:{line}: {FACT}"
    assert f"question 1: {other}" in both
    one = only_json(invoke("show", "two", "--quotes", "--question", "0", "--json").stdout)
    assert one["run_id"] == "two"
    first, start = one["quotes"][0], book.read_text().index(FACT)
    assert (first["question"], first["sentence"], first["score"]) == (0, FACT, 1)
    # As the tool of `memagent mcp` has them.
    assert (first["text"], first["place"]) == (FACT, f"{book.name}:{line}")
    assert (first["start"], book.read_text()[start : first["end"]].strip()) == (start, FACT)
    assert "can't be shown together" in invoke("show", "two", "--quotes", "--chunk", "0").stderr


def test_what_the_document_does_not_say_is_no_quote(
    invoke: Invoke, book: Path, server: Script, served: list[str]
) -> None:
    server.default = say("Zebras graze elsewhere.")
    invoke("ask", book, QUESTION, *served, "--run-id", "r")
    assert invoke("show", "r", "--quotes").stdout.splitlines() == 2 * [
        "0.00 not found: Zebras graze elsewhere."
    ]


def test_quotes_need_the_document_that_was_read(
    invoke: Invoke, made: str, book: Path, tmp_path: Path
) -> None:
    moved = book.rename(tmp_path / "moved.txt")
    gone = invoke("show", made, "--quotes")
    assert gone.exit_code == 3
    assert "or give --document FILE" in gone.stderr
    found = invoke("show", made, "--quotes", "--document", moved)
    assert f": {FACT}\n" in found.stdout
    book.write_text("Another book. " * 2000)
    changed = invoke("show", made, "--quotes", "--display", "json")
    assert changed.exit_code == 5
    error = only_json(changed.stdout)["error"]
    assert error["type"] == "RunMismatch"
    assert "--document FILE" in error["message"]
    text = moved.read_bytes()
    invoke("ask", "-", QUESTION, "--model", "extractive", "--run-id", "piped", stdin=text)
    piped = invoke("show", "piped", "--quotes")
    assert piped.exit_code == 3
    assert "run 'piped' read no file by its path; give --document FILE" in piped.stderr
    assert FACT in invoke("show", "piped", "--quotes", "--document", moved).stdout
    assert invoke("show", made, "--document", moved).exit_code == 2


def test_a_partial_answer_is_shown_as_one(invoke: Invoke, tmp_path: Path) -> None:
    path = tmp_path / "suitors.txt"
    path.write_text("\n\n".join(f"Natasha marries suitor {n}." for n in range(300)))
    limits = Limits(calls=3, answer=True)
    with MemoryAgent("extractive", window=2048, limits=limits) as agent:
        result = agent.ask(path, "Whom does Natasha marry?", run_id="part")
    assert result.partial
    (said,) = only_json(invoke("show", "part", "--display", "json").stdout)["results"]
    facts = ("answer", "stop_reason", "detail", "partial")
    assert {name: said[name] for name in facts} == {
        name: value for name, value in result.to_dict().items() if name in facts
    }
    shown = invoke("show", "part").stdout
    assert shown.endswith(f"answer: {result.answer} (from the memory so far)\n")
    # A resumed run that stops again has no other answer yet.
    again = invoke("resume", "part", "--max-calls", "5")
    assert again.exit_code == 6
    assert f"answer: {result.answer} (from the memory so far)\n" in again.stdout
    assert "the answer may be incomplete: the limit calls=5 is reached" in again.stderr
    assert "memagent resume part" in again.stderr
    whole = invoke("resume", "part", "--display", "json")
    assert whole.exit_code == 0
    done = only_json(whole.stdout)
    assert (done["stop_reason"], done["partial"], done["detail"]) == ("answered", False, "")


def test_the_conversation_of_a_chunk(invoke: Invoke, made: str) -> None:
    done = invoke("show", made, "--chunk", "0")
    assert done.stdout.startswith("--- user\n")
    assert "The harvest of year 3 " in done.stdout
    assert "--- assistant\n" in done.stdout
    said = only_json(invoke("show", made, "--chunk", "0", "--display", "json").stdout)
    assert said["steps"][0]["kind"] == "update"
    chunks = only_json(invoke("runs", "--display", "json").stdout)[0]["chunks"]
    assert invoke("show", made, "--chunk", str(chunks - 1)).exit_code == 0
    beyond = invoke("show", made, "--chunk", str(chunks))
    assert beyond.exit_code == 2  # not the answer's
    assert f"has read {chunks} chunks, numbered from 0" in beyond.stderr


def test_all_conversations_of_a_chunk(invoke: Invoke, tmp_path: Path) -> None:
    class Harvest(BaseModel):
        year: int

    model = ScriptedModel(['{"year": "bad"}', '{"year": 2}'])
    with MemoryAgent(model, store=tmp_path / "runs.sqlite") as agent:
        agent.extract("Year two.", Harvest, "every year", run_id="rows")
    given = ("show", "rows", "--chunk", "0", "--store", tmp_path / "runs.sqlite")
    shown = invoke(*given).stdout
    assert shown.count("--- assistant") == 2
    assert "question 0" not in shown
    assert len(only_json(invoke(*given, "--json").stdout)["steps"]) == 2


def test_retries_and_stops_are_told(
    invoke: Invoke, book: Path, server: Script, served: list[str]
) -> None:
    server.replies = [say("one"), say(""), say("two"), say(""), say(""), say("")]
    assert invoke("ask", book, QUESTION, *served, "--run-id", "r").exit_code == 6
    shown = invoke("show", "r").stdout
    assert "r, stopped" in shown
    assert "chunk 1 sent again: " in shown
    assert "stopped (unusable reply): chunk 2" in shown


@pytest.mark.parametrize("display", ["plain", "json"])
def test_a_run_that_is_not_there(invoke: Invoke, display: str) -> None:
    assert invoke("show", "nosuch", "--display", display).exit_code == 5


def test_a_store_that_is_not_the_default_one_is_named(
    invoke: Invoke, made: str, tmp_path: Path
) -> None:
    RunStore(store := tmp_path / "other.sqlite").close()
    assert "; `memagent runs` lists them" in invoke("show", "nosuch").stderr
    elsewhere = invoke("show", "nosuch", "--store", store).stderr
    assert f"; `memagent runs --store {store}` lists them" in elsewhere


def test_json_is_a_flag_too(invoke: Invoke, made: str) -> None:
    flag = invoke("show", made, "--json")
    assert flag.stdout == invoke("show", made, "--display", "json").stdout
