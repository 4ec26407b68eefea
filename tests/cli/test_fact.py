"""`memagent show --fact`: when a text entered the memory, from where, and when it was lost."""

import json
import unicodedata
from pathlib import Path

import pytest
from tests.cli.conftest import QUESTION, Invoke

from memagent import MemoryAgent, RunStore, ScriptedModel
from memagent.cli.fact import trace


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """A run that noted the boiler with chunk 1, lost it with chunk 3, and noted it again with chunk 4."""
    notes = [
        "The lift.",
        "The  Boiler\nfailed.",
        "The boiler failed. A lift.",
        "The lift.",
        "The boiler failed.",
    ]

    def reply(request: object) -> str:
        return notes.pop(0) if notes else "It failed."

    store = RunStore(tmp_path / "runs.sqlite")
    parts = [
        "A lift came. ",
        "Then the boiler failed. ",
        "More of it. ",
        "A lift again. ",
        "The end. ",
    ]
    text = "".join(part * 16 for part in parts)
    model = ScriptedModel(reply, window=4096)
    MemoryAgent(model, store=store, chunk_tokens=250).ask(text, "What?", run_id="r")
    return store


def test_each_stay_in_the_memory_is_traced(store: RunStore) -> None:
    found = trace(store, "r", 0, "the boiler failed")
    assert [(stay["chunk"], stay["lost"]) for stay in found.stays] == [(1, 3), (4, None)]
    assert found.chunks[0] <= 1
    assert found.in_answer is False
    first = found.stays[0]
    assert isinstance(first["start"], int)
    assert isinstance(first["end"], int)
    assert 0 < first["start"] < first["end"]
    assert trace(store, "r", 0, "it failed").in_answer is True
    assert trace(store, "r", 0, "the roof").stays == []


def test_it_is_printed(invoke: Invoke, store: RunStore) -> None:
    said = invoke("show", "r", "--store", store.path, "--fact", "THE BOILER failed").stdout
    lines = said.splitlines()
    assert lines[0].startswith("enters the memory with chunk 1 (characters ")
    assert "lost with chunk 3" in " ".join(lines)
    assert "stays to the end" in " ".join(lines)
    assert lines[-1] == "in the answer: no"
    read = store.count("r", "chunk")
    nothing = invoke("show", "r", "--store", store.path, "--fact", "roof").stdout
    assert nothing.splitlines() == [
        "never in the memory",
        f"in the document: not in the {read} chunks read",
        "in the answer: no",
    ]
    found = json.loads(
        invoke("show", "r", "--store", store.path, "--fact", "roof", "--json").stdout
    )
    assert found["questions"] == [{"question": 0, "stays": [], "chunks": [], "in_answer": False}]
    assert invoke("show", "r", "--store", store.path, "--fact", " ").exit_code == 2


def test_one_of_several_questions(invoke: Invoke, book: Path) -> None:
    questions = ("-q", QUESTION, "-q", "Which clerk counted year 7?")
    invoke("ask", book, *questions, "--model", "extractive", "--run-id", "two")
    both = invoke("show", "two", "--fact", "clerk 0").stdout
    assert "question 0" in both
    assert "question 1" in both
    assert "question" not in invoke("show", "two", "--fact", "clerk 0", "--question", "1").stdout


def test_an_unfinished_run_is_not_called_finished(invoke: Invoke, book: Path) -> None:
    given = ("--model", "extractive", "--window", "2048", "--run-id", "part", "--max-calls", "2")
    assert invoke("ask", book, "What did clerk 0 count at noon?", *given).exit_code == 6
    said = invoke("show", "part", "--fact", "Ada Lovelace").stdout.splitlines()
    assert said == [
        "never in the memory",
        "in the document: not in the 2 chunks read so far",
        "no answer yet",
    ]
    held = invoke("show", "part", "--fact", "clerk 0 at noon").stdout
    assert "still there at chunk 1" in held
    assert "to the end" not in held


def test_a_text_may_cross_a_boundary_of_chunks(store: RunStore) -> None:
    first, second = (store.effect("r", f"chunk-{number}") or {} for number in (0, 1))
    across = first["text"][-12:] + second["text"][:12]
    assert trace(store, "r", 0, across).chunks[0] == 1
    assert trace(store, "r", 0, "lift came").chunks == [0]


def test_accents_may_be_written_in_two_ways(store: RunStore) -> None:
    two = unicodedata.normalize("NFD", "Serviced in März.")
    model = ScriptedModel(["Serviced in März.", "März"])
    MemoryAgent(model, store=store).ask(two, "When?", run_id="two")
    assert (
        trace(store, "two", 0, "märz").chunks == trace(store, "two", 0, "ma\u0308rz").chunks == [0]
    )


def test_only_one_view_is_shown(invoke: Invoke, made: str, tmp_path: Path) -> None:
    for other in (("--html", tmp_path / "x.html"), ("--chunk", "0")):
        done = invoke("show", made, "--fact", "clerk", *other)
        assert done.exit_code == 2
        assert "can't be shown together: give one of them" in done.stderr
    assert not (tmp_path / "x.html").exists()
