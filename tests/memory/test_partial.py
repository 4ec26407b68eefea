"""Limits(answer=True): a reading that a limit stops answers from the memory so far, and still resumes."""

from collections.abc import Callable
from typing import Any

import pytest

from memagent import (
    ChatRequest,
    Limits,
    MemoryAgent,
    Result,
    RunStore,
    ScriptedModel,
    StopReason,
    Usage,
)
from memagent.events import Event

TEXT = "".join(f"Line {number} tells of the number {number * number}.\n" for number in range(120))
QUESTIONS = ["Which?", "Whose?", "Where?"]


def told(request: ChatRequest) -> str:
    """The last line that was read, and how often."""
    parts = request.parts
    if request.kind == "answer":
        return f"It was {parts['memory']}"
    last = parts["chunk"].strip().splitlines()[-1]
    return f"{parts['question']} {last[:8].strip()}."


class Asked:
    """Answers, and keeps what it was asked."""

    def __init__(self, respond: Callable[[ChatRequest], Any] = told) -> None:
        self.respond, self.requests = respond, list[ChatRequest]()

    def __call__(self, request: ChatRequest) -> Any:
        self.requests.append(request)
        return self.respond(request)

    @property
    def kinds(self) -> list[str]:
        return [request.kind for request in self.requests]


def read(
    store: RunStore, limits: Limits | None, questions: list[str], asked: Asked | None = None
) -> tuple[list[Result], Asked]:
    asked = asked or Asked()
    agent = MemoryAgent(ScriptedModel(asked, window=2048), store=store, limits=limits)
    return agent.ask_many(TEXT, questions, run_id="r1"), asked


def whole(questions: list[str]) -> list[Result]:
    store = RunStore(None)
    return read(store, None, questions)[0]


def free(results: list[Result]) -> list[Any]:
    return [(r.answer, r.memory, r.chunks, r.stop_reason, r.partial) for r in results]


def answers(store: RunStore) -> list[Event]:
    return [event for event in store.events("r1") if event.type == "answered"]


def test_a_reading_that_a_limit_stops_answers_from_the_memory_so_far(store: RunStore) -> None:
    ((result,), asked) = read(store, Limits(calls=2, answer=True), ["Which?"])
    assert asked.kinds == ["update", "update", "answer"]  # one more than the limit
    assert asked.requests[-1].parts["memory"] == result.memory
    assert result.answer == f"It was {result.memory}"
    assert (result.partial, result.stop_reason) == (True, StopReason.LIMIT)
    assert "calls=2" in result.detail
    assert "from the memory so far" in repr(result)
    assert (result.chunks, result.usage.calls) == (2, 3)
    assert store.get("r1").status == "stopped"
    assert store.effect("r1", "answer/q0") is None
    events = list(store.events("r1"))
    assert [event.type for event in events][-2:] == ["stopped", "answered"]
    (answered,) = answers(store)
    assert (answered.partial, answered.answer) == (True, result.answer)  # type: ignore[union-attr]


@pytest.mark.parametrize("answer", [False, True])
@pytest.mark.parametrize("questions", [QUESTIONS[:1], QUESTIONS], ids=["one", "three"])
def test_a_run_that_the_same_limit_stops_again_says_so_once(
    store: RunStore, questions: list[str], *, answer: bool
) -> None:
    limits = Limits(calls=4, answer=answer)
    first, _ = read(store, limits, questions)
    if answer:  # it took a call, which the next session counts
        partial, (first, asked) = first, read(store, limits, questions)
        assert asked.kinds == []
        assert free(first) == free(partial)
    before = list(store.events("r1"))
    again, asked = read(store, limits, questions)
    assert list(store.events("r1")) == before
    assert asked.kinds == []
    assert free(again) == free(first)


@pytest.mark.parametrize("most", range(1, 5))
@pytest.mark.parametrize("questions", [QUESTIONS[:1], QUESTIONS], ids=["one", "three"])
def test_it_resumes_to_the_whole_answer(store: RunStore, most: int, questions: list[str]) -> None:
    first, _ = read(store, Limits(calls=most, answer=True), questions)
    before = list(store.events("r1"))
    results, asked = read(store, None, questions)
    assert free(results) == free(whole(questions))
    assert list(store.events("r1"))[: len(before)] == before
    partial = sum(result.partial for result in first)
    assert [event.partial for event in answers(store)] == [True] * partial + [False] * len(results)  # type: ignore[union-attr]
    # Partial answers are paid for, and nothing that is committed is asked for again.
    once = sum((result.usage for result in whole(questions)), Usage())
    assert store.usage("r1").calls == once.calls + partial
    assert len(asked.requests) == once.calls - most
    assert store.get("r1").status == "finished"


def test_each_of_several_questions_answers_from_its_own_memory(store: RunStore) -> None:
    results, asked = read(store, Limits(calls=6, answer=True), QUESTIONS)
    assert asked.kinds == ["update"] * 6 + ["answer"] * 3
    for question, result in zip(QUESTIONS, results, strict=True):
        assert (result.partial, result.chunks) == (True, 2)
        assert question in result.memory
        assert result.answer == f"It was {result.memory}"
        assert result.usage.calls == 3


def test_a_question_with_nothing_read_yet_has_no_answer(store: RunStore) -> None:
    results, asked = read(store, Limits(calls=2, answer=True), QUESTIONS)
    assert sorted(asked.kinds) == ["answer", "answer", "update", "update"]
    assert sorted(result.partial for result in results) == [False, True, True]
    for result in results:
        assert result.stop_reason is StopReason.LIMIT
        assert (result.answer is None) is (result.memory == "") is (not result.partial)


def test_with_nothing_read_yet_nobody_is_asked(store: RunStore) -> None:
    ((result,), asked) = read(store, Limits(calls=0, answer=True), ["Which?"])
    assert (result.answer, result.partial, result.stop_reason) == (None, False, StopReason.LIMIT)
    assert asked.requests == []
    assert answers(store) == []


def test_a_limit_before_the_answer_call_gives_the_memory_of_the_whole_text(store: RunStore) -> None:
    (expected,) = whole(["Which?"])
    most = expected.usage.calls - 1
    ((result,), _) = read(store, Limits(calls=most, answer=True), ["Which?"])
    assert (result.answer, result.memory) == (expected.answer, expected.memory)
    assert (result.partial, result.stop_reason) == (True, StopReason.LIMIT)
    (again,), asked = read(store, None, ["Which?"])
    assert (again.answer, again.partial) == (expected.answer, False)
    assert asked.kinds == ["answer"]


def test_a_partial_answer_that_says_nothing_leaves_the_run_stopped(store: RunStore) -> None:
    asked = Asked(lambda request: "" if request.kind == "answer" else told(request))
    ((result,), asked) = read(store, Limits(calls=2, answer=True), ["Which?"], asked)
    assert (result.answer, result.partial) == (None, False)
    assert asked.kinds == ["update"] * 2 + ["answer"] * 3
    assert result.memory
    (again,), _ = read(store, None, ["Which?"])
    assert again.answer == whole(["Which?"])[0].answer
