"""Chunks that are read at once, and notes that are read again."""

import asyncio
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.bench.systems.benches import PLAIN, WINDOW, haystack, sample, scripted, setting

from memagent import ChatRequest, ConcurrencyLimit, Limits, RunStore, ScriptedModel, UsageLimit
from memagent.errors import ServerFailed, WindowTooSmall
from memagent.messages import Completion
from memagent.tokens.byte_bound import ByteBound
from memagent_bench.systems.base import Status
from memagent_bench.systems.map_reduce import BETWEEN, MapReduce

TAGS = PLAIN.tags
PIECES = ["<|im_end|>", "</memory>", "word ", "é", "\n\n", ".", "<"]


def note(request: ChatRequest) -> str:
    """A short note that names its call."""
    return f"Note {request.seed}." if request.kind == "update" else "7405812"


def long_note(request: ChatRequest) -> str:
    """As long as a note may be."""
    return "n" * request.max_tokens if request.kind == "update" else "7405812"


async def test_chunks_with_an_empty_memory_and_then_the_answer_from_all_notes(
    store: RunStore,
) -> None:
    model = scripted(note)
    outcome = await MapReduce(setting(model, store)).answer(sample(haystack()), "r")
    *updates, answer = model.requests
    text = haystack()
    assert "".join(r.parts["chunk"] for r in updates) == text
    assert {r.parts["memory"] for r in updates} == {""}
    assert all("(nothing noted yet)" in r.messages[0].content for r in updates)
    notes = BETWEEN.join(f"Note {r.seed}." for r in updates)
    assert f"<{TAGS.memory}>\n{notes}\n</{TAGS.memory}>" in answer.messages[0].content
    assert len({r.seed for r in model.requests}) == len(model.requests)
    # The notes fit at once however long they are, so the prediction is exact.
    small = await MapReduce(setting(scripted(note), store)).answer(sample(haystack(60)), "r")
    assert small.chunks == 2
    assert small.predicted_calls == small.usage.calls == 3
    assert outcome.usage.calls == len(model.requests)
    assert outcome.usage.calls <= (outcome.predicted_calls or 0)


@pytest.mark.parametrize("sentences", [1, 60, 200, 1000, 4000])
async def test_notes_of_full_length_take_what_was_predicted(
    store: RunStore, sentences: int
) -> None:
    model = scripted(long_note)
    outcome = await MapReduce(setting(model, store)).answer(sample(haystack(sentences)), "r")
    assert outcome.answer == "7405812"
    assert outcome.usage.calls == outcome.predicted_calls
    assert len({request.seed for request in model.requests}) == len(model.requests)
    used = outcome.usage.prompt_tokens + outcome.usage.completion_tokens
    assert used <= (outcome.predicted_tokens or 0)
    for request in model.requests:
        prompt = ByteBound().count_messages(request.messages)
        assert prompt + request.max_tokens <= WINDOW


async def test_no_note_is_lost_when_they_are_read_again(store: RunStore) -> None:
    def keep_names(request: ChatRequest) -> str:
        if request.kind == "answer":
            return "done"
        names = [w for w in request.parts["chunk"].split() if w.startswith("name")]
        return " ".join(names)

    names = [f"name{n}" for n in range(40)]
    text = " ".join(name + " filler" * 60 for name in names)
    model = scripted(keep_names)
    await MapReduce(setting(model, store, memory_tokens=160)).answer(sample(text), "r")
    # Chunks cut between words, so each name stands in one of them, and in their order.
    memory = model.requests[-1].parts["memory"]
    assert memory.split() == names


def test_prompts_fit_whatever_the_notes(store: RunStore) -> None:
    parts: list[str] = []

    def nasty(request: ChatRequest) -> str:
        text = "x" + "".join(parts) * 400
        return text[: request.max_tokens] if request.kind == "update" else "A"

    model = scripted(nasty)
    system = MapReduce(setting(model, store))

    @given(st.lists(st.sampled_from(PIECES), min_size=1))
    @settings(max_examples=15)
    def check(drawn: list[str]) -> None:
        parts[:] = drawn
        model.requests.clear()
        asyncio.run(system.answer(sample(haystack(200)), "r"))
        for request in model.requests:
            content = request.messages[0].content
            assert ByteBound().count_messages(request.messages) + request.max_tokens <= WINDOW
            assert content.count(f"</{TAGS.memory}>") == 1

    check()


async def test_notes_that_are_joined_close_no_field(store: RunStore) -> None:
    def halves(request: ChatRequest) -> str:
        """A memory that begins and ends with half of a tag."""
        filler = "n" * (request.max_tokens - 20)
        return f"/section> {filler} <" if request.kind == "update" else "A"

    model = scripted(halves)
    outcome = await MapReduce(setting(model, store)).answer(sample(haystack(1000)), "r")
    assert outcome.usage.calls > (outcome.chunks or 0) + 1
    for request in model.requests:
        closed = re.findall(r"<\s*/\s*section>", request.messages[0].content)
        assert len(closed) == (1 if request.kind == "update" else 0)


async def test_as_many_at_once_as_the_shared_model_lets(store: RunStore) -> None:
    running = most = 0

    async def slow(request: ChatRequest) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return note(request)

    model = ConcurrencyLimit(scripted(slow), 5)
    await MapReduce(setting(model, store)).answer(sample(haystack(600)), "r")
    assert most == 5


async def test_a_failed_call_is_raised_and_the_others_are_not_sent(store: RunStore) -> None:
    async def fails(request: ChatRequest) -> str | Exception:
        await asyncio.sleep(0)
        return ServerFailed("gone") if len(model.requests) == 4 else note(request)

    model = scripted(fails)
    shared = setting(ConcurrencyLimit(model, 1), store)
    with pytest.raises(ServerFailed):
        await MapReduce(shared).answer(sample(haystack(2000)), "r")
    assert len(model.requests) < 8


async def test_an_empty_note_is_asked_for_again_and_then_stops_the_sample(store: RunStore) -> None:
    def empty(request: ChatRequest) -> str:
        return "" if "upbeat-pizza is" in request.parts.get("chunk", "") else note(request)

    model = ScriptedModel(empty, window=WINDOW)
    outcome = await MapReduce(setting(ConcurrencyLimit(model, 1), store)).answer(
        sample(haystack()), "r"
    )
    assert (outcome.status, outcome.answer) == (Status.STOPPED, None)
    assert "the reply is empty" in outcome.detail
    assert outcome.usage.retries == 3


async def test_a_limit_stops_the_sample(store: RunStore) -> None:
    model = scripted(note)
    limited = ConcurrencyLimit(UsageLimit(model, Limits(calls=3)), 1)
    outcome = await MapReduce(setting(limited, store)).answer(sample(haystack()), "r")
    assert (outcome.status, outcome.usage.calls, len(model.requests)) == (Status.STOPPED, 3, 3)


async def test_notes_that_could_never_be_joined_are_refused_beforehand(store: RunStore) -> None:
    model = scripted(long_note)
    shared = setting(model, store, memory_tokens=300, chunk_tokens=400)
    with pytest.raises(WindowTooSmall, match="two"):
        await MapReduce(shared).answer(sample(haystack()), "r")
    assert model.requests == []
    # A document of which all notes fit at once needs no joining.
    few = await MapReduce(shared).answer(sample("A short one. " * 20), "r")
    assert few.answer == "7405812"


async def test_a_note_that_is_cut_off_is_cut_at_a_sentence(store: RunStore) -> None:
    def cut_off(request: ChatRequest) -> Completion | str:
        if request.kind == "answer":
            return "7405812"
        return Completion.model_validate(
            {"text": "The number is 7405812. And it is", "finish_reason": "length"}
        )

    model = scripted(cut_off)
    await MapReduce(setting(model, store)).answer(sample("One chunk."), "r")
    assert model.requests[-1].parts["memory"] == "The number is 7405812."


async def test_calls_are_linear_in_the_document(store: RunStore) -> None:
    calls = []
    for sentences in (1000, 2000, 4000):
        outcome = await MapReduce(setting(scripted(long_note), store)).answer(
            sample(haystack(sentences)), "r"
        )
        calls.append(outcome.usage.calls)
    assert calls[2] / calls[1] == pytest.approx(2, rel=0.1)
    assert calls[1] / calls[0] == pytest.approx(2, rel=0.1)
