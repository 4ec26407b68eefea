"""Many questions: prompts that begin with the chunk, and finished runs that are asked again from their memories."""

import pytest

from memagent import ChatRequest, Limits, MemoryAgent, RunStore, ScriptedModel, ToolAgent
from memagent.errors import EmptyDocument, RunMismatch, RunNotFound, RunUnfinished

TEXT = "The prince left for Moscow. Natasha stayed. " * 200
QUESTIONS = ["Where is the prince?", "Where is Natasha?"]
NOTES = {"Where is the prince?": "In Moscow.", "Where is Natasha?": "At home."}


def note(request: ChatRequest) -> str:
    return NOTES.get(request.parts["question"], "Both are known.")


def wait() -> str:
    """Waits."""
    return "waited"


def agent(
    store: RunStore, model: ScriptedModel | None = None, limits: Limits | None = None
) -> MemoryAgent:
    return MemoryAgent(model or ScriptedModel(note, window=2048), store=store, limits=limits)


def test_a_finished_run_is_asked_again_from_all_its_memories(store: RunStore) -> None:
    agent(store).ask_many(TEXT, QUESTIONS, run_id="first")
    model = ScriptedModel(note, window=2048)
    again = agent(store, model)
    notes = again.memories("first")
    assert notes.name == "memories of run first"
    result = again.ask(notes, "Who travelled?", run_id="second")
    assert result.answer == "Both are known."
    assert result.usage.calls == len(model.requests) == 2  # however long the document was
    shown = model.requests[0].messages[-1].content
    for question, memory in NOTES.items():
        assert f"Notes on: {question}\n{memory}" in shown
    assert "Natasha stayed" not in shown
    assert again.ask(notes, "Who travelled?", run_id="second").usage == result.usage
    assert len(model.requests) == 2  # it is a run like any other


def test_memories_beyond_a_chunk_are_read_in_several(store: RunStore) -> None:
    questions = [f"Who is number {number}?" for number in range(40)]
    long = ScriptedModel(lambda request: request.parts["question"] * 10, window=2048)
    agent(store, long).ask_many(TEXT, questions, run_id="first")
    model = ScriptedModel(note, window=2048)
    again = agent(store, model)
    estimate = again.estimate(again.memories("first"), "Who?")
    result = again.ask(again.memories("first"), "Who?")
    assert result.usage.calls == estimate.calls_max > 2
    shown = "".join(request.parts.get("chunk", "") for request in model.requests)
    assert all(question in shown for question in questions)


def test_a_question_that_noted_nothing_is_left_out(store: RunStore) -> None:
    def reply(request: ChatRequest) -> str:
        nothing = request.kind == "update" and request.parts["question"] == QUESTIONS[1]
        return "[keep]" if nothing else note(request)

    with MemoryAgent(ScriptedModel(reply, window=2048), gate="update", store=store) as first:
        first.ask_many(TEXT, QUESTIONS, run_id="first")
    model = ScriptedModel(note, window=2048)
    again = agent(store, model)
    again.ask(again.memories("first"), "Who?")
    assert model.requests[0].parts["chunk"] == "Notes on: Where is the prince?\nIn Moscow."


def test_memories_of_a_run_that_cannot_be_asked_again(store: RunStore) -> None:
    again = agent(store, limits=Limits(calls=2))
    with pytest.raises(RunNotFound, match="no run 'nothing'"):
        again.memories("nothing")
    again.ask(TEXT, "Who?", run_id="half")
    with pytest.raises(RunUnfinished, match=r"'half' isn't finished.* resume it first"):
        again.memories("half")
    keeps = ScriptedModel(lambda r: "[keep]" if r.kind == "update" else "No.", window=2048)
    MemoryAgent(keeps, gate="update", store=store).ask(TEXT, "Who?", run_id="empty")
    with pytest.raises(EmptyDocument, match="'empty' noted nothing"):
        again.memories("empty")
    session = ToolAgent(ScriptedModel(["Done."], window=16384), tools=[wait], store=store)
    session.run("Go.", run_id="t")
    with pytest.raises(RunMismatch, match="'t' is a tool session"):
        again.memories("t")


@pytest.mark.parametrize(("prompts", "shares"), [("shared", True), ("plain", False)])
def test_prompts_about_a_chunk_begin_alike_with_the_chunk_first(
    store: RunStore, prompts: str, shares: bool
) -> None:
    model = ScriptedModel(note, window=2048)
    MemoryAgent(model, prompts=prompts, store=store).ask_many(TEXT, QUESTIONS)
    first, second = [request for request in model.requests if request.kind == "update"][2:4]
    chunk = first.parts["chunk"]
    assert chunk == second.parts["chunk"]
    beginning, _, _ = first.messages[0].content.partition(chunk)
    assert second.messages[0].content.startswith(beginning + chunk) is shares
