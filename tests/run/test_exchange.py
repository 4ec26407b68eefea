"""One wish for a usable reply: what is sent, what is sent again, what it costs, and what a run keeps of it."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from memagent.errors import ContextOverflow, ServerBusy
from memagent.messages import (
    ChatRequest,
    Completion,
    Failure,
    Message,
    Sampling,
    ToolSpec,
    Usage,
)
from memagent.models.scripted import Reply as Said
from memagent.models.scripted import ScriptedModel
from memagent.prompts import UnusableReply
from memagent.run.caller import NOT_EMPTY, Caller, seed_of, waste
from memagent.run.exchange import NEAR, Exchange, Unusable
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
        f"{WINDOW - prompt} for the reply, which needs {needed}: the counter 'utf8-bytes'"
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
    with pytest.raises(Unusable, match=r"^the reply is empty, 3 times in a row$"):
        await caller.ask(sent)
    assert len(model.requests) == 3
    assert sent.usage == Usage(retries=3, retry_tokens=3 * PROMPT)


@pytest.mark.parametrize(
    ("said", "accepted"),
    [(["a a", "b b", ""], 1), (["a a", "", ""], 0), (["", "b b", ""], 1), (["a a", "", "c c"], 2)],
)
async def test_a_doubted_reply_is_better_than_none(said: list[str], accepted: int) -> None:
    caller, model = calling(said)
    sent = asking(doubts=lambda text: f"{text} repeats" if " " in text else None)
    reply = await caller.ask(sent)
    assert (reply.value, reply.doubt) == (said[accepted], f"{said[accepted]} repeats")
    assert (reply.completion.text, reply.attempt) == (said[accepted], accepted)
    whys = [f"{text} repeats" if text else "the reply is empty" for text in said[:2]]
    assert sent.reasons == whys
    # Each call is charged once, whichever counts as the one that was of use.
    cost = sent.usage
    assert (len(model.requests), cost.calls, cost.retries) == (3, 1, 2)
    tokens = cost.prompt_tokens + cost.completion_tokens + cost.retry_tokens
    assert tokens == 3 * PROMPT + sum(map(len, said))
    assert reply.usage == cost


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


async def test_a_paid_reply_is_kept_where_its_tokens_cannot_be_counted() -> None:
    class Away(Counter):
        def count(self, text: str) -> int:
            raise ServerBusy("full")

    caller, model = calling([Completion(text="fine")], Away())
    sent = asking(bound=PROMPT)
    assert (await caller.ask(sent)).value == "fine"
    assert sent.usage == Usage(calls=1, prompt_tokens=PROMPT, completion_tokens=4)
    assert len(model.requests) == 1


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
    assert (await replace(caller, model=other).ask(asking())).value == "second"
    assert other.requests[0].seed == seed_of(7, "act-3", 0)
    assert (await caller.ask(asking())).value == "first"
