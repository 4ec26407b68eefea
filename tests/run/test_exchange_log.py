"""What a run keeps of its exchanges: replies are asked for once, whatever happens in between."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.run.heard import Heard, session, temporary
from tests.run.test_exchange import PROMPT, asking, calling

from memagent import RunStore
from memagent.errors import (
    ConnectionFailed,
    ContextOverflow,
    LimitReached,
    ModelError,
    RunMismatch,
    ServerBusy,
)
from memagent.events import Event, Retried
from memagent.messages import ChatRequest, Completion, Failure, Message, ToolCall, Usage
from memagent.models.scripted import Reply as Said
from memagent.models.scripted import ScriptedModel
from memagent.run.caller import NOT_EMPTY, Caller, seed_of
from memagent.run.exchange import Record, Reply, Unusable
from memagent.tokens.byte_bound import ByteBound


@pytest.fixture
def store() -> Iterator[RunStore]:
    store = temporary()
    yield store
    store.close()


def opened(
    store: RunStore, replies: Sequence[Said] | Callable[[ChatRequest], Any], **fields: Any
) -> tuple[Caller, ScriptedModel, Heard]:
    """A caller as a new session of the run has it."""
    log, heard = session(store)
    caller, model = calling(replies, log=log, **fields)
    return caller, model, heard


async def spent(store: RunStore) -> Usage:
    return await asyncio.to_thread(store.usage, "r1")


async def body(store: RunStore, key: str = "act-3") -> Any:
    return await asyncio.to_thread(store.effect, "r1", key)


def keep(reply: Reply[str]) -> Record:
    kept = Retried(chunk=None, reason=f"kept {reply.value}")
    return {"said": reply.value.upper()}, [kept]


async def test_a_committed_reply_is_handed_back_and_nobody_is_asked(store: RunStore) -> None:
    said = Completion(
        text="fine",
        reasoning="hm",
        tool_calls=(ToolCall(id="a", name="look", arguments="{}"),),
        usage=Usage(calls=1, prompt_tokens=9, completion_tokens=2),
    )
    caller, _, heard = opened(store, [said])
    first = await caller.ask(asking(record=keep))
    assert heard.reasons == ["kept fine"]
    kept = await body(store)
    assert kept["said"] == "FINE"
    assert (await spent(store)) == said.usage

    caller, model, heard = opened(store, [])
    sent = asking(record=keep)
    again = await caller.ask(sent)
    assert (again.value, again.completion) == (first.value, first.completion)
    assert (model.requests, heard.events, again.usage) == ([], [], Usage())
    assert sent.usage == said.usage  # for whoever tells of it; the run has paid once
    assert await spent(store) == said.usage
    assert await body(store) == kept
    # Another key is another wish.
    caller, model, _ = opened(store, ["other"])
    assert (await caller.ask(asking(key="act-4"))).value == "other"


async def test_a_conversation_holds_the_text_once(store: RunStore) -> None:
    def conversation(reply: Reply[str]) -> Record:
        return {"conversation": reply.conversation().model_dump(mode="json")}, ()

    caller, _, _ = opened(store, ["fine indeed"])
    await caller.ask(asking(record=conversation))
    kept = await body(store)
    assert str(kept).count("fine indeed") == 1
    caller, model, _ = opened(store, [])
    assert (await caller.ask(asking(record=conversation))).completion.text == "fine indeed"
    assert model.requests == []


async def test_an_unusable_reply_is_paid_for_before_the_next_is_asked_for(store: RunStore) -> None:
    seen: list[Usage] = []

    async def reply(request: ChatRequest) -> str:
        seen.append(await spent(store))
        return "fine" if len(seen) == 3 else ""

    caller, _, heard = opened(store, reply)
    sent = asking(record=keep)
    await caller.ask(sent)
    tokens = PROMPT
    assert seen == [Usage(retries=n, retry_tokens=n * tokens) for n in range(3)]
    assert (await spent(store)) == sent.usage
    assert (sent.usage.calls, sent.usage.retries) == (1, 2)
    assert heard.reasons == ["the reply is empty", "the reply is empty", "kept fine"]


async def test_each_session_asks_with_seeds_of_its_own_after_unusable_replies(
    store: RunStore,
) -> None:
    seeds: list[int | None] = []
    for place in range(3):
        caller, model, _ = opened(store, ["", "", ""])
        with pytest.raises(Unusable, match="3 times in a row"):
            await caller.ask(asking())
        asked = [(request.thinking, request.pattern) for request in model.requests]
        expected: list[Any] = [(False, NOT_EMPTY)] * 3
        assert asked == (expected if place else [(None, None), *expected[1:]])
        seeds += [request.seed for request in model.requests]
    assert seeds == [seed_of(7, "act-3", attempt) for attempt in range(9)]
    assert await spent(store) == Usage(retries=9, retry_tokens=9 * PROMPT)
    caller, model, _ = opened(store, ["fine"])
    await caller.ask(asking())
    assert model.requests[0].seed == seed_of(7, "act-3", 9)
    usage = await spent(store)
    assert (usage.calls, usage.retries, usage.repeated) == (1, 9, 0)


@pytest.mark.parametrize("unusable", [0, 1, 2])
async def test_what_was_in_flight_is_repeated_and_counts_apart(
    store: RunStore, unusable: int
) -> None:
    caller, _, _ = opened(store, [*[""] * unusable, asyncio.CancelledError()])
    with pytest.raises(asyncio.CancelledError):
        await caller.ask(asking())
    assert (await spent(store)).retries == unusable
    caller, model, _ = opened(store, ["fine"])
    await caller.ask(asking())
    usage = await spent(store)
    assert (usage.calls, usage.retries, usage.repeated) == (1, unusable, 1)
    # After unusable replies it is another draw; what was in flight is drawn again as it was.
    assert model.requests[0].seed == seed_of(7, "act-3", unusable)
    assert model.requests[0].thinking is (False if unusable else None)


async def test_a_doubted_reply_that_is_accepted_is_the_committed_one(store: RunStore) -> None:
    asked: dict[str, Any] = {"doubts": lambda text: "odd" if text == "odd" else None}
    caller, _, _ = opened(store, ["odd", asyncio.CancelledError()])
    with pytest.raises(asyncio.CancelledError):
        await caller.ask(asking(**asked))
    # Each session has all attempts, as after unusable replies.
    caller, _, heard = opened(store, ["", "odd", ""])
    reply = await caller.ask(asking(record=keep, **asked))
    assert (reply.value, reply.doubt, reply.attempt) == ("odd", "odd", 2)
    assert heard.reasons == ["the reply is empty", "odd", "kept odd"]
    usage = await spent(store)
    assert (usage.calls, usage.retries, usage.repeated) == (1, 3, 1)
    assert usage.prompt_tokens + usage.completion_tokens + usage.retry_tokens == 4 * PROMPT + 6
    caller, model, _ = opened(store, [])
    again = await caller.ask(asking(**asked))
    assert (again.value, again.attempt, model.requests) == ("odd", 2, [])


@pytest.mark.parametrize(
    ("stops", "cost"),
    [
        (ServerBusy("busy", attempts=3), Usage(retries=3)),
        (LimitReached("no more"), Usage()),
    ],
)
async def test_what_ended_by_itself_is_not_in_flight(
    store: RunStore, stops: Exception, cost: Usage
) -> None:
    caller, _, _ = opened(store, ["", stops])
    sent = asking()
    with pytest.raises(type(stops)):
        await caller.ask(sent)
    cost += Usage(retries=1, retry_tokens=PROMPT)
    assert sent.usage == await spent(store) == cost
    caller, _, heard = opened(store, ["fine"])
    await caller.ask(asking())
    usage = await spent(store)
    assert (usage.calls, usage.retries, usage.repeated) == (1, cost.retries, 0)
    assert heard.events == []


async def test_what_was_never_sent_is_not_in_flight(store: RunStore) -> None:
    long = (Message(role="user", content="x" * 7900),)
    for _ in range(2):
        caller, _, _ = opened(store, [])
        with pytest.raises(ContextOverflow):
            await caller.ask(asking(1000, messages=long))
    assert await spent(store) == Usage()
    caller, _, _ = opened(store, ["fine"])
    await caller.ask(asking())
    assert await spent(store) == Usage(calls=1, prompt_tokens=PROMPT, completion_tokens=4)


async def test_a_counter_that_cannot_be_asked_costs_nothing(store: RunStore) -> None:
    class Away(ByteBound):
        def count_messages(self, *messages: Any, **fields: Any) -> int:
            raise ModelError("no counter", attempts=1)

    for _ in range(2):
        log, _ = session(store)
        caller, model = calling(["fine"], Away(), log=log)
        with pytest.raises(ModelError, match="no counter"):
            await caller.ask(asking())
        assert model.requests == []
    assert await spent(store) == Usage()


async def test_attempts_that_a_retry_got_over_are_told(store: RunStore) -> None:
    said = Completion(text="fine", failures=(Failure(error="ServerBusy: busy", waited=2.0),))
    caller, _, heard = opened(store, [said])
    await caller.ask(asking(question=2, chunk=5))
    (event,) = heard.events
    assert event == Retried(seq=0, question=2, chunk=5, reason="ServerBusy: busy", waited=2.0)


@pytest.mark.parametrize(
    ("replies", "error", "why", "attempts"),
    [
        ([ServerBusy("busy", attempts=2)], ServerBusy, "busy", 2),
        ([LimitReached("no more")], LimitReached, "no more", 0),
        (["", "", ""], Unusable, "the reply is empty", 0),
    ],
)
async def test_a_failure_that_is_kept_is_met_again(
    store: RunStore, replies: list[Said], error: type[Exception], why: str, attempts: int
) -> None:
    caller, _, _ = opened(store, replies)
    sent = asking(keeps_failure=True)
    with pytest.raises(error):
        await caller.ask(sent)
    assert await body(store) == {"failed": why, "attempts": attempts}
    assert await spent(store) == sent.usage
    caller, model, heard = opened(store, ["fine"])
    again = asking(keeps_failure=True)
    with pytest.raises(ModelError, match=why) as met:
        await caller.ask(again)
    assert met.value.attempts == attempts
    assert (model.requests, heard.events, again.usage) == ([], [], Usage())
    # It takes another key to be asked again.
    assert (await caller.ask(asking(key="summary-1"))).value == "fine"


async def test_a_summary_of_other_messages_is_not_handed_back(store: RunStore) -> None:
    wish: dict[str, Any] = {"key": "summary-1", "kind": "summary"}
    caller, _, _ = opened(store, ["So far."])
    await caller.ask(asking(**wish))
    caller, model, _ = opened(store, ["Other."])
    other = (Message(role="user", content="Why not?"),)
    with pytest.raises(RunMismatch, match=r"summary-1.*earlier version.*new run"):
        await caller.ask(asking(**wish, messages=other))
    assert (await caller.ask(asking(**wish))).value == "So far."
    assert model.requests == []


async def test_a_reply_may_be_kept_and_asked_for_again_under_another_key(store: RunStore) -> None:
    caller, _, heard = opened(store, ["cut", "fine"])
    first = asking(rejects=lambda text: "it was cut off" if text == "cut" else None)
    assert (await caller.ask(first)).value == "cut"
    assert first.usage == Usage(retries=1, retry_tokens=PROMPT + 3)
    assert heard.reasons == ["it was cut off"]
    assert (await body(store))["reply"]["text"] == "cut"
    again = asking(key="act-3/room", attempts=1, rejects=first.rejects)
    assert (await caller.ask(again)).value == "fine"
    usage = await spent(store)
    assert (usage.calls, usage.retries) == (1, 1)
    # A replay meets both, and pays for neither.
    caller, model, heard = opened(store, [])
    for key, said in (("act-3", "cut"), ("act-3/room", "fine")):
        assert (await caller.ask(asking(key=key, rejects=first.rejects))).value == said
    assert (model.requests, heard.events) == ([], [])
    assert await spent(store) == usage


async def test_half_surrogate_pairs_can_be_stored(store: RunStore) -> None:
    call = ToolCall(id="\ud800", name="look\ud800", arguments='{"a": "\ud800"}')
    said = Completion(text="a\ud800", reasoning="\ud800", tool_calls=(call,))
    caller, _, _ = opened(store, [said])
    first = await caller.ask(asking())
    assert (first.value, first.completion.reasoning) == ("a\ufffd", "\ufffd")
    (call,) = first.completion.tool_calls
    assert (call.id, call.name, call.arguments) == ("\ufffd", "look\ufffd", '{"a": "\ufffd"}')
    caller, _, _ = opened(store, [])
    assert (await caller.ask(asking())).completion == first.completion


async def test_a_record_that_counts_is_tried_again_where_the_counter_is_away(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent.models.retry.sleep", nothing)
    tries: list[int] = []

    def counted(reply: Reply[str]) -> tuple[dict[str, Any], list[Event]]:
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionFailed("away")
        return {"tokens": 4}, []

    caller, model, _ = opened(store, ["fine"])
    await caller.ask(asking(record=counted))
    assert (len(tries), len(model.requests)) == (2, 1)
    assert (await body(store))["tokens"] == 4


async def nothing(seconds: float) -> None:
    """Passes the time."""
