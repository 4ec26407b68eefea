"""What the page is told of runs: each event that matters, in words."""

from typing import Any

import pytest
from pydantic import BaseModel
from tests.viewer import made

from memagent import Limits, MemoryAgent, RunStore, ScriptedModel, ToolAgent
from memagent.prompts import PromptSet
from memagent_viewer.view import View


def data_of(store: RunStore, run_id: str) -> dict[str, Any]:
    view = View(store, run_id)
    assert view.update()
    assert not view.update()
    return view.data()


def test_notes_stand_with_their_chunk(store: RunStore) -> None:
    replies = ["one", "", "two words. " * 200, "", "", ""]
    agent = MemoryAgent(ScriptedModel(replies, window=2048), store=store, degenerate="take")
    agent.ask(made.text(), "Who?", run_id="r")
    data = data_of(store, "r")
    assert data["status"] == "stopped"
    first, second, third = data["books"][0]["steps"]
    assert (first["how"], first["delta"], first["notes"]) == ("updated", ["one"], [])
    assert second["notes"][0].startswith("sent again: the reply is empty")
    assert second["notes"][1].startswith("memory cut at a sentence end, from 2,")
    assert second["cost"][3] == 1
    assert third["how"] == "waiting"
    assert third["notes"][-1].startswith("stopped (unusable reply): chunk 2")
    assert data["books"][0]["answer"]["stopped"] == third["notes"][-1]


class Bill(BaseModel):
    """A row."""

    number: int


def test_several_replies_about_a_chunk_are_one_step(store: RunStore) -> None:
    replies = ['{"number": 1}\n{"number": "two"}', '{"number": 2}\n{"number": 1}']
    agent = MemoryAgent(ScriptedModel(replies, window=8192), store=store)
    found = agent.extract("Two bills.", Bill, "every bill", run_id="r")
    (book,) = data_of(store, "r")["books"]
    (step,) = book["steps"]
    assert book["question"] == "every bill"
    assert found.memory == '{"number":1}\n{"number":2}'
    assert (step["how"], step["delta"], step["cost"][0]) == ("updated", [found.memory], 2)
    assert step["notes"] == ["1 duplicate"]
    assert book["answer"]["text"] == "2 rows"


def test_the_memory_after_chunks_were_read_again_is_told(store: RunStore) -> None:
    run_id = made.read_again(store)
    assert data_of(store, run_id)["books"][0]["answer"]["memory"] == "two"


def test_several_questions_have_a_book_each(store: RunStore) -> None:
    def respond(request: Any) -> str:
        return f"{request.kind} of {request.parts['question']}"

    agent = MemoryAgent(ScriptedModel(respond, window=2048), store=store)
    agent.ask_many(made.text(60), ["Who?", "When?"], run_id="r")
    books = data_of(store, "r")["books"]
    assert [book["answer"]["text"] for book in books] == ["answer of Who?", "answer of When?"]
    assert [book["steps"][0]["delta"] for book in books] == [
        ["update of Who?"],
        ["update of When?"],
    ]
    assert {step["how"] for book in books for step in book["steps"][1:]} == {"unchanged"}


def test_kept_memories_and_an_answer_from_a_part(store: RunStore) -> None:
    def respond(request: Any) -> str:
        if request.kind == "answer":
            return "Emden"
        return "[keep]" if request.parts["memory"].strip() == "Emden" else "Emden"

    limits = Limits(calls=3, answer=True)
    agent = MemoryAgent(
        ScriptedModel(respond, window=2048), store=store, gate="update", limits=limits
    )
    agent.ask(made.text(), "Who?", run_id="r")
    book = data_of(store, "r")["books"][0]
    assert [step["how"] for step in book["steps"]] == ["updated", "kept", "kept"]
    assert book["answer"]["text"] == "Emden"
    assert book["answer"]["notes"] == ["from the part read so far"]


def test_settings_are_told(store: RunStore) -> None:
    facts = dict(data_of(store, made.read(store))["facts"])
    prompts = PromptSet.load("plain")
    assert facts["seed"] == facts["reread"] == "0"
    assert (facts["gate"], facts["trust"]) == ("off", "neutral")
    assert facts["prompts"] == f"plain:{prompts.hash}"
    assert "questions" not in facts
    assert "tools.digest" in dict(data_of(store, made.work(store))["facts"])


def test_a_session_in_its_order(store: RunStore) -> None:
    items = data_of(store, made.work(store))["items"]
    assert [item["type"] for item in items][:4] == ["message", "step", "compaction", "step"]
    assert items[-1]["type"] == "answer"
    assert items[-2]["answers"]  # the page shows it once
    kiel, luebeck = items[1]["calls"]
    assert (kiel["text"], kiel["key"], kiel["ok"]) == ('look(town="Kiel")', "tool-0-0", True)
    assert luebeck["text"] == 'look(town="Lübeck")'
    assert kiel["output"] + "x" * kiel["more"] != kiel["output"]
    assert {row["at"] for row in items[1]["left"]} == {1, 2}
    rows = [row for item in items if item["type"] == "compaction" for row in item["rows"]]
    assert all(row["handle"] for row in rows)
    norden = next(item for item in items if item["type"] == "step" and item["step"] == 4)
    assert not norden["calls"][0]["ok"]


def test_long_outputs_are_packed_the_latest_first(store: RunStore) -> None:
    view = View(store, made.work(store))
    view.update()
    texts = dict(view.texts())
    assert list(texts) == ["tool-3-0", "tool-2-0", "tool-1-0", "tool-0-0", "tool-0-1"]
    assert texts["tool-0-0"].endswith("week 69: 30 ships")


def test_a_call_that_could_not_be_read_and_a_stop(store: RunStore) -> None:
    replies = ['<tool_call>{"name": </tool_call>', '<tool_call>{"name": "look"}</tool_call>']
    model = ScriptedModel(replies, window=8000)
    with ToolAgent(model, [made.look], max_steps=2, protocol="text", store=store) as agent:
        agent.run("Look!", run_id="r")
    _, misread, step, stop = data_of(store, "r")["items"]
    assert misread["notes"] == ["the call could not be parsed"]
    assert [call["ok"] for call in step["calls"]] == [False]
    assert stop["text"].startswith("stopped (out of steps): no answer after 2 steps")


@pytest.mark.parametrize("key", ["chunk-999", "tool-0-0", "update-0/q9"])
def test_a_text_that_is_not_there(store: RunStore, key: str) -> None:
    assert View(store, made.read(store)).text(key) is None


def test_a_session_shows_what_all_of_it_cost(store: RunStore) -> None:
    made.work(store)
    data = data_of(store, "work")
    paid = [item["cost"] for item in data["items"] if item.get("cost") and not item.get("answers")]
    assert sum(cost[0] for cost in paid) == sum(calls for _, calls, _ in data["payments"])
    assert sum(cost[1] + cost[2] for cost in paid) == sum(n for *_, n in data["payments"])


def test_payments_are_in_the_order_of_time(store: RunStore) -> None:
    made.read(store)
    payments = data_of(store, "read")["payments"]
    seconds = [at for at, *_ in payments]
    assert seconds == sorted(seconds)
    assert 0 <= seconds[0] <= seconds[-1] < 120
    paid = store.usage("read")
    assert sum(calls for _, calls, _ in payments) == paid.calls == 22
    assert sum(tokens for *_, tokens in payments) == paid.prompt_tokens + paid.completion_tokens
