"""Sentences as the answer, and for the model to answer from."""

import pytest
from tests.bench.systems.benches import FILLER, NEEDLE, WINDOW, haystack, sample, scripted, setting
from tests.bench.systems.test_direct import memory_of, prompt_of

from memagent import RunStore
from memagent_bench.length_tokens import length_counter
from memagent_bench.systems.base import Status
from memagent_bench.systems.registry import open_system

ALONE = ("regex", "bm25")
ASKING = ("regex-model", "bm25-model")
SECOND = "Another special magic number for upbeat-pizza is 1111111."


def tokens(text: str) -> int:
    return length_counter(None).count(text)


@pytest.mark.parametrize("name", ALONE)
async def test_the_best_sentences_in_their_order_and_no_call(store: RunStore, name: str) -> None:
    model = scripted()
    text = FILLER * 50 + NEEDLE + "\n" + FILLER * 50 + SECOND + "\n" + FILLER * 50
    room = tokens(f"{NEEDLE}\n{SECOND}")
    outcome = await open_system(name, setting(model, store)).answer(
        sample(text, generate=room), "r"
    )
    assert outcome.answer == f"{NEEDLE}\n{SECOND}"
    assert model.requests == []
    assert (outcome.usage.calls, outcome.predicted_calls, outcome.predicted_tokens) == (0, 0, 0)
    assert outcome.shown == pytest.approx((len(NEEDLE) + len(SECOND)) / len(text))


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("room", [-10, -1, 0, 1, 200])
async def test_the_reply_keeps_to_the_tasks_tokens(store: RunStore, name: str, room: int) -> None:
    """GPT-2's, although the model counts bytes."""
    generate = tokens(NEEDLE) + room
    system = open_system(name, setting(scripted(), store))
    outcome = await system.answer(sample(haystack(), generate=generate), "r")
    assert outcome.answer is not None
    assert tokens(outcome.answer) <= generate
    if room < 0:
        assert tokens(outcome.answer) >= generate - 1
        assert NEEDLE.startswith(outcome.answer)
    else:
        assert NEEDLE in outcome.answer


@pytest.mark.parametrize("name", ALONE)
async def test_nothing_found_is_an_empty_reply(store: RunStore, name: str) -> None:
    outcome = await open_system(name, setting(scripted(), store)).answer(
        sample("Xyz abc.", "Qqq-rr?"), "r"
    )
    assert (outcome.status, outcome.answer, outcome.shown) == (Status.ANSWERED, "", 0.0)


@pytest.mark.parametrize("name", ASKING)
async def test_the_model_is_shown_as_many_as_fit(store: RunStore, name: str) -> None:
    model = scripted()
    lines = [f"Line {n} has the magic number {n:07d} for upbeat-pizza." for n in range(2000)]
    text = "\n".join(lines)
    outcome = await open_system(name, setting(model, store)).answer(sample(text), "r")
    shown = memory_of(model).splitlines()
    places = [lines.index(line) for line in shown]
    assert places == sorted(places)
    assert len(shown) > 20
    assert WINDOW - 60 < prompt_of(model) <= WINDOW
    assert prompt_of(model) == outcome.predicted_tokens
    assert outcome.shown == pytest.approx(sum(map(len, shown)) / len(text))
    assert outcome.answer == "7405812"


@pytest.mark.parametrize("name", ASKING)
async def test_the_model_is_asked_also_where_nothing_was_found(store: RunStore, name: str) -> None:
    model = scripted()
    outcome = await open_system(name, setting(model, store)).answer(
        sample("Xyz abc.", "Qqq-rr?"), "r"
    )
    assert memory_of(model) == "(nothing noted yet)"
    assert outcome.shown == 0.0
