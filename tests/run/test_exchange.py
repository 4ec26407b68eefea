"""One wish for a usable reply: what is sent, what is sent again, what it costs, and what a run keeps of it."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from tests.run.heard import Heard, session, temporary

from memagent import RunStore
from memagent.errors import ConnectionFailed, ContextOverflow, LimitReached, ModelError, ServerBusy
from memagent.events import Event, Retried
from memagent.messages import (
    ChatRequest,
    Completion,
    Failure,
    Message,
    Sampling,
    ToolCall,
    ToolSpec,
    Usage,
)
from memagent.models.scripted import Reply as Said
from memagent.models.scripted import ScriptedModel
from memagent.prompts import UnusableReply
from memagent.run.exchange import (
    NEAR,
    NOT_EMPTY,
    Caller,
    Exchange,
    Record,
    Reply,
    Unusable,
    seed_of,
    waste,
)
from memagent.tokens.byte_bound import ByteBound

ASKED = (Message(role="user", content="Why?"),)
PROMPT = ByteBound().count_messages(ASKED)
WINDOW = 8192
SAMPLING = Sampling(temperature=0.5)


class Counter(ByteBound):
    """Counts how often it counts, with a template that may write more where reasoning is off."""

    def __init__(self, more: int = 0) -> None:
        self.more, self.counted = more, 0

    def count_messages(
        self, messages: Sequence[Message], *, thinking: bool | None = None, tools: object = ()
    ) -> int:
        self.counted += 1
        return super().count_messages(messages) + self.more * (thinking is False)


def text_of(completion: Completion) -> str:
    if not completion.text.strip():
        raise UnusableReply("the reply is empty")
    return completion.text


def asking(most: int = 100, **fields: Any) -> Exchange[str]:
    return Exchange(
        **{
            "key": "act-3",
            "kind": "act",
            "messages": ASKED,
            "read": text_of,
            "most": most,
            **fields,
        }
    )


def calling(
    replies: Sequence[Said] | Callable[[ChatRequest], Any] | ScriptedModel,
    counter: ByteBound | None = None,
    **fields: Any,
) -> tuple[Caller, ScriptedModel]:
    model = replies if isinstance(replies, ScriptedModel) else ScriptedModel(replies, window=None)
    settings: dict[str, Any] = {"sampling": SAMPLING, "seed": 7, **fields}
    return Caller(model, counter or ByteBound(), WINDOW, **settings), model


# --- the request


async def test_a_first_try_leaves_reasoning_to_the_model() -> None:
    tools = (ToolSpec(name="look"),)
    caller, model = calling(["fine"])
    reply = await caller.ask(asking(77, tools=tools, parts={"task": "t"}))
    (request,) = model.requests
    assert (request.thinking, request.pattern, request.max_tokens) == (None, None, 77)
    assert (request.messages, request.kind, request.tools) == (ASKED, "act", tools)
    assert (request.sampling, request.parts) == (SAMPLING, {"task": "t"})
    assert request.seed == seed_of(7, "act-3", 0)
    assert (reply.value, reply.messages, reply.kind) == ("fine", ASKED, "act")
    conversation = reply.conversation(chunk=4)
    assert conversation.messages == (*ASKED, Message(role="assistant", content="fine"))
    assert (conversation.kind, conversation.chunk) == ("act", 4)


def test_seeds_are_stable_and_apart() -> None:
    assert seed_of(0, "update-12/q0", 0) == seed_of(0, "update-12/q0", 0) == 1323873299
    keys = [f"{kind}-{n}{q}" for kind in ("update", "act") for n in range(9) for q in ("", "/q0")]
    seeds = {seed_of(s, key, a) for s in range(3) for key in keys for a in range(3)}
    assert len(seeds) == 3 * 36 * 3
    assert all(0 <= seed < 2**31 for seed in seeds)


# --- room


async def test_a_bound_spares_the_counting_until_the_limit_is_near() -> None:
    most = 100
    last = WINDOW - most - NEAR
    for bound, counts in ((last, 0), (last + 1, 1), (None, 1)):
        counter = Counter()
        caller, model = calling(["fine"], counter)
        await caller.ask(asking(most, bound=bound))
        (request,) = model.requests
        assert counter.counted == counts
        assert request.prompt_tokens == (PROMPT if counts else bound)
        assert request.max_tokens == most


async def test_how_near_is_the_exchanges_to_say() -> None:
    for near, counts in ((0, 0), (1, 1)):
        counter = Counter()
        caller, _ = calling(["fine"], counter)
        await caller.ask(asking(100, bound=WINDOW - 100, near=near))
        assert counter.counted == counts


async def test_prompts_are_counted_whole_after_a_server_reported_more_than_the_bound() -> None:
    counter = Counter()
    over = Completion(text="fine", usage=Usage(calls=1, prompt_tokens=51, completion_tokens=1))
    within = over.model_copy(update={"usage": Usage(prompt_tokens=50, completion_tokens=1)})
    caller, _ = calling([within, over, within, "fine"], counter)
    for counts in (0, 0, 1, 2):
        await caller.ask(asking(bound=50))
        assert counter.counted == counts


async def test_output_is_what_the_prompt_leaves() -> None:
    long = (Message(role="user", content="x" * 7900),)
    left = WINDOW - ByteBound().count_messages(long)
    assert 100 < left < 200, "else this test shows nothing"
    for most, sent in ((100, 100), (200, left)):
        caller, model = calling(["fine"])
        await caller.ask(asking(most, messages=long, bound=50_000))
        assert model.requests[0].max_tokens == sent


@pytest.mark.parametrize(("least", "fits"), [(None, False), (1, True), (140, True), (500, False)])
async def test_a_prompt_that_leaves_too_little_is_not_sent(least: int | None, fits: bool) -> None:
    long = (Message(role="user", content="x" * 7900),)
    caller, model = calling(["fine"])
    sent = asking(1000, messages=long, least=least)
    if fits:
        assert (await caller.ask(sent)).value == "fine"
        return
    prompt, needed = ByteBound().count_messages(long), least or 500
    with pytest.raises(ContextOverflow) as error:
        await caller.ask(sent)
    says = (
        f"act-3: the prompt takes {prompt} tokens of a window of {WINDOW}, which leaves "
        f"{WINDOW - prompt} for the reply, and {needed} are needed: the counter 'utf8-bytes'"
    )
    assert str(error.value).startswith(says)
    assert "--tokenizer" in str(error.value)
    assert error.value.attempts == 0
    assert (model.requests, sent.usage) == ([], Usage())


# --- replies that are no use


@pytest.mark.parametrize("earlier", [0, 1], ids=["from the first", "after another key"])
async def test_after_an_unusable_reply_it_is_asked_not_to_reason(earlier: int) -> None:
    counter = Counter(WINDOW - 1000)
    caller, model = calling(["", " ", "fine"][earlier:], counter)
    sent = asking(1200, attempts=earlier, bound=PROMPT)
    assert (await caller.ask(sent)).value == "fine"
    left = WINDOW - counter.count_messages(ASKED, thinking=False)
    assert 600 < left < 1200, "else this test shows nothing"
    asked = [(r.thinking, r.pattern, r.max_tokens, r.seed) for r in model.requests]
    expected: list[Any] = [(None, None, 1200, seed_of(7, "act-3", 0))]
    expected += [(False, NOT_EMPTY, left, seed_of(7, "act-3", place)) for place in (1, 2)]
    assert asked == expected[earlier:]
    assert {request.messages for request in model.requests} == {ASKED}
    assert sent.usage.retries == 2 - earlier
    assert sent.reasons == ["the reply is empty"] * (2 - earlier)


async def test_a_pattern_would_keep_a_server_from_its_own_calls() -> None:
    caller, model = calling(["", "fine"])
    await caller.ask(asking(tools=(ToolSpec(name="look"),)))
    assert [(r.thinking, r.pattern) for r in model.requests] == [(None, None), (False, None)]


async def test_where_the_longer_prompt_leaves_no_room_nothing_is_sent() -> None:
    caller, model = calling([""], Counter(WINDOW))
    sent = asking(500)
    with pytest.raises(ContextOverflow):
        await caller.ask(sent)
    assert len(model.requests) == 1
    assert sent.usage.retries == 1


async def test_it_is_not_asked_for_ever() -> None:
    caller, model = calling(["", "", "", "fine"])
    sent = asking()
    with pytest.raises(Unusable, match="^the reply is empty, 3 times in a row$"):
        await caller.ask(sent)
    assert len(model.requests) == 3
    assert sent.usage == Usage(retries=3, retry_tokens=3 * PROMPT)


async def test_a_failure_is_no_unusable_reply() -> None:
    caller, model = calling([ServerBusy("full", attempts=4), "fine"])
    sent = asking()
    with pytest.raises(ServerBusy):
        await caller.ask(sent)
    assert sent.usage == Usage(retries=4)
    await caller.ask(sent)
    assert [request.thinking for request in model.requests] == [None, None]
    assert (sent.usage.calls, sent.usage.retries) == (1, 4)


async def test_what_it_costs_adds_up_with_what_led_to_nothing() -> None:
    failures = (Failure(error="ServerBusy: busy", waited=2.0),)
    usage = Usage(calls=1, prompt_tokens=10, completion_tokens=5, retries=1, retry_tokens=3)
    caller, _ = calling(["", Completion(text="fine", usage=usage, failures=failures)])
    sent = asking()
    reply = await caller.ask(sent)
    assert reply.usage == sent.usage == usage + Usage(retries=1, retry_tokens=PROMPT)
    assert sent.reasons == ["the reply is empty", "ServerBusy: busy"]


def test_a_wasted_reply_counts_as_a_retry() -> None:
    usage = Usage(calls=1, prompt_tokens=10, completion_tokens=5, retries=1, retry_tokens=3)
    assert waste(usage) == Usage(retries=2, retry_tokens=18)


@pytest.mark.parametrize(
    ("text", "matches"),
    [("", False), (" ", False), ("\n a", False), ("a", True), ("a\n\nb ", True), ("日", True)],
)
def test_what_is_not_empty(text: str, matches: bool) -> None:
    assert bool(re.fullmatch(NOT_EMPTY, text)) == matches


async def test_the_same_caller_over_another_model() -> None:
    caller, _ = calling(["first"])
    other = ScriptedModel(["second"])
    assert (await caller.over(other).ask(asking())).value == "second"
    assert other.requests[0].seed == seed_of(7, "act-3", 0)
    assert (await caller.ask(asking())).value == "first"


# --- what a run keeps of it


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
        assert asked == [(False if place or n else None, NOT_EMPTY if place or n else None) for n in range(3)]  # fmt: skip
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
