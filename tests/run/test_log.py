"""Effects are made once: what is committed is handed back, what is not is made, and what it cost is known."""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from memagent.runstore.effects import StoredEffects

from memagent import threads
from memagent.errors import LimitReached, ModelError, ServerBusy, StoreError
from memagent.events import Event, Retried
from memagent.messages import ChatRequest, Completion, Failure, Message, ToolCall, Usage
from memagent.models.scripted import Reply, ScriptedModel
from memagent.prompts import UnusableReply
from memagent.run.log import Effects, Remembered, Told, wasted
from memagent.run.sync import Journal
from memagent.runstore import RunStore

ASKED = ChatRequest(messages=(Message(role="user", content="?"),), max_tokens=8, kind="act", seed=7)
EARLY = ASKED.model_copy(update={"kind": "summary", "parts": {"early": "yes"}})
HEARD = Retried(chunk=None, reason="heard")


@pytest.fixture
def store():
    store = RunStore(None)
    store.create("r1", {"agent": "tools", "questions": ["task"]}, {}, {})
    yield store
    store.close()


def heard(request: ChatRequest, completion: Completion) -> Sequence[Event]:
    if not completion.text.strip():
        raise UnusableReply("the reply is empty")
    return [HEARD.model_copy(update={"reason": completion.text})]


def opened(
    store: RunStore, replies: Sequence[Reply] | Callable[[ChatRequest], Reply], told: Told = heard
) -> tuple[Remembered, Effects, ScriptedModel]:
    """A model as a new session of the run sees it."""
    inner = ScriptedModel(replies)
    effects = Effects(Journal(store, "r1"))
    return Remembered(inner, effects, told), effects, inner


def said(effects: Effects) -> list[str]:
    return [event.reason for event in effects.news() if isinstance(event, Retried)]


async def spent(store: RunStore) -> Usage:
    return await asyncio.to_thread(store.usage, "r1")


async def test_replies_are_handed_back_in_their_order(store: RunStore) -> None:
    model, effects, _ = opened(store, ["one", "two"])
    first = [await model.complete(ASKED), await model.complete(ASKED)]
    assert said(effects) == ["one", "two"]
    model, effects, inner = opened(store, ["three"])
    again = [await model.complete(ASKED), await model.complete(ASKED)]
    assert again == first
    assert (inner.requests, said(effects)) == ([], [])
    assert (await model.complete(ASKED)).text == "three"
    assert (await spent(store)).calls == 3
    # Kinds are counted apart.
    summary = ASKED.model_copy(update={"kind": "summary"})
    assert (await opened(store, ["S"])[0].complete(summary)).text == "S"


async def test_an_unusable_reply_is_paid_for_and_asked_for_again(store: RunStore) -> None:
    model, effects, inner = opened(store, ["", " ", "one"])
    assert [(await model.complete(ASKED)).text for _ in range(3)] == ["", " ", "one"]
    assert said(effects) == ["the reply is empty", "the reply is empty", "one"]
    usage = await spent(store)
    assert (usage.calls, usage.retries) == (1, 2)
    assert usage.retry_tokens > 0
    assert model.unusable == set()
    # An engine that draws by the seed is not asked with the same one again.
    assert len({request.seed for request in inner.requests}) == 3
    replayed, _, inner = opened(store, [])
    assert (await replayed.complete(ASKED)).text == "one"
    assert inner.requests == []


async def test_kinds_whose_last_reply_was_unusable_are_known(store: RunStore) -> None:
    model, effects, _ = opened(store, ["one", ""])
    await model.complete(ASKED)
    assert model.unusable == set()
    await model.complete(ASKED)
    assert model.unusable == {ASKED.kind}
    assert await effects.count(ASKED.kind) == 1


async def test_a_resumed_run_asks_with_another_seed_after_unusable_replies(store: RunStore) -> None:
    seeds: set[int | None] = set()
    for _ in range(3):
        model, _, inner = opened(store, [""])
        await model.complete(ASKED)
        seeds |= {request.seed for request in inner.requests}
    assert len(seeds) == 3


async def test_what_was_under_way_is_repeated_and_counts_apart(store: RunStore) -> None:
    model, _, _ = opened(store, [asyncio.CancelledError()])
    with pytest.raises(asyncio.CancelledError):
        await model.complete(ASKED)
    model, _, _ = opened(store, [ServerBusy("busy", attempts=3), "one"])
    with pytest.raises(ServerBusy):
        await model.complete(ASKED)
    assert await spent(store) == Usage(retries=3, repeated=1)
    await model.complete(ASKED)
    usage = await spent(store)
    assert (usage.calls, usage.retries, usage.repeated) == (1, 3, 1)


async def test_a_limit_costs_nothing(store: RunStore) -> None:
    model, _, _ = opened(store, [LimitReached("no more"), "one"])
    with pytest.raises(LimitReached):
        await model.complete(ASKED)
    assert await spent(store) == Usage()
    assert (await model.complete(ASKED)).text == "one"
    assert (await spent(store)).repeated == 0


async def test_attempts_that_a_retry_got_over_are_told(store: RunStore) -> None:
    reply = Completion(text="one", failures=(Failure(error="ServerBusy: busy", waited=2.0),))
    model, effects, _ = opened(store, [reply])
    await model.complete(ASKED)
    waits = [event.waited for event in effects.news() if isinstance(event, Retried)]
    assert waits == [2.0, 0.0]


async def test_early_summaries_come_to_the_same_each_time(store: RunStore) -> None:
    model, _, _ = opened(
        store, ["", "short", ServerBusy("busy", attempts=2), LimitReached("no more")]
    )
    texts: list[str] = [(await model.complete(EARLY)).text for _ in range(2)]
    for failure in (ServerBusy, LimitReached):
        with pytest.raises(failure):
            await model.complete(EARLY)
    usage = await spent(store)
    assert (usage.calls, usage.retries) == (1, 1 + 2)
    model, effects, inner = opened(store, ["more"])
    assert [(await model.complete(EARLY)).text for _ in range(2)] == texts == ["", "short"]
    for why, attempts in (("busy", 2), ("no more", 0)):
        with pytest.raises(ModelError, match=why) as error:
            await model.complete(EARLY)
        assert error.value.attempts == attempts
    assert inner.requests == []
    assert (await model.complete(EARLY)).text == "more"
    assert said(effects) == ["more"]
    assert (await spent(store)).calls == 2


async def test_half_surrogate_pairs_can_be_stored(store: RunStore) -> None:
    call = ToolCall(id="\ud800", name="look\ud800", arguments='{"a": "\ud800"}')
    reply = Completion(text="a\ud800", reasoning="\ud800", tool_calls=(call,))
    model, _, _ = opened(store, [reply])
    completion = await model.complete(ASKED)
    assert completion == await opened(store, [])[0].complete(ASKED)
    assert completion.text == "a\ufffd"
    assert completion.tool_calls[0].arguments == '{"a": "\ufffd"}'


async def test_news_come_in_the_order_of_the_log(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads.widen(4)
    effects = Effects(Journal(store, "r1"))
    commit = StoredEffects.commit

    def slow(self: StoredEffects, key: str, *rest: Any) -> list[Event]:
        events = commit(self, key, *rest)
        time.sleep(0.003 if key.endswith("0") else 0)
        return events

    monkeypatch.setattr(StoredEffects, "commit", slow)

    async def one(place: int) -> None:
        await effects.begin(f"tool-0-{place}")
        await effects.commit(f"tool-0-{place}", {}, Usage(), [HEARD, HEARD])

    seen: list[Event] = []
    tasks = [asyncio.create_task(one(place)) for place in range(50)]
    while not all(task.done() for task in tasks):
        seen += effects.news()
        await asyncio.sleep(0)
    seen += effects.news()
    assert [event.seq for event in seen] == list(range(100))


async def test_a_commit_that_is_cancelled_is_heard_of(store: RunStore) -> None:
    effects = Effects(Journal(store, "r1"))
    task = asyncio.create_task(effects.log(HEARD))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [event.seq for event in effects.news()] == [0]


async def test_what_follows_from_others_is_committed_once(store: RunStore) -> None:
    effects = Effects(Journal(store, "r1"))
    assert await effects.find("answer") is None
    await effects.once("answer", {"answer": "42"}, HEARD)
    await effects.once("answer", {"answer": "43"}, HEARD)
    assert len(effects.news()) == 1
    assert await effects.find("answer") == {"answer": "42"}


async def test_a_store_that_fails_is_heard_of(store: RunStore) -> None:
    effects = Effects(Journal(store, "r1"))
    await effects.begin("act-0")
    store.close()
    with pytest.raises(StoreError, match="closed"):
        await effects.commit("act-0", {}, Usage(), [HEARD])
    assert effects.news() == []


async def test_nobody_is_asked_for_the_window_again() -> None:
    assert await Remembered(ScriptedModel([]), Effects.__new__(Effects), heard).window() is None


def test_a_wasted_reply_counts_as_a_retry() -> None:
    usage = Usage(calls=1, prompt_tokens=10, completion_tokens=5, retries=1, retry_tokens=3)
    assert wasted(usage) == Usage(retries=2, retry_tokens=18)
