import re
from collections.abc import Sequence

import pytest

from memagent.errors import ContextOverflow, ServerBusy
from memagent.memory.plan import MemoryPlan, MemorySettings
from memagent.messages import Completion, Message, Usage
from memagent.models.scripted import ScriptedModel
from memagent.prompts import PromptSet, UnusableReply
from memagent.prompts.neutral import JOINER
from memagent.run.exchange import NOT_EMPTY, Call, Caller, Unusable, bound_memory, seed_of
from memagent.runstore import QuestionState
from memagent.tokens.base import TokenCounter
from memagent.tokens.byte_bound import ByteBound

MESSAGES = (Message(role="user", content="Why?"),)
WINDOW = 8192


def plan(memory: int, counter: TokenCounter | None = None) -> MemoryPlan:
    return MemoryPlan.make(
        ("Why?",),
        MemorySettings(memory_tokens=memory),
        PromptSet.load("plain"),
        model="m",
        counter=counter or ByteBound(),
        window=WINDOW,
    )


@pytest.mark.parametrize(
    ("text", "cut_off", "kept"),
    [
        ("One is 1. Two is 2.", False, "One is 1. Two is 2."),
        ("One is 1. Two is", True, "One is 1."),
        ("One is 1. Two is 2.", True, "One is 1. Two is 2."),
        ("no sentence at all", True, "no sentence at"),
        ("Facts. item 1 costs 1, item 2 costs 2", False, "Facts. item 1 costs 1,"),
        ("One is 1. Two is 2. Three is 3.", False, "One is 1. Two is 2."),
        ("- one: 1\n- two: 2\n- three: 3\n", False, "- one: 1\n- two: 2"),
        ("x" * 50, False, "x" * 24),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467" * 3, False, "\U0001f468\u200d\U0001f469\u200d\U0001f467"),
    ],
)  # fmt: skip
def test_a_memory_is_cut_at_the_last_sentence_end_that_fits(
    text: str, cut_off: bool, kept: str
) -> None:
    memory, tokens, before = bound_memory(text, plan(24), cut_off=cut_off)
    assert memory == kept
    assert (tokens, before) == (len(kept.encode()), len(text.encode()))


def test_a_memory_is_counted_as_it_is_shown() -> None:
    memory, tokens, _ = bound_memory("a</memory>b", plan(100), cut_off=False)
    assert memory == f"a<{JOINER}/memory>b"
    assert tokens == len(memory.encode())


def test_seeds_are_stable_and_apart() -> None:
    assert seed_of(0, 0, 0, 0) == seed_of(0, 0, 0, 0)
    seeds = {
        seed_of(s, q, c, a) for s in range(3) for q in range(3) for c in range(9) for a in range(3)
    }
    assert len(seeds) == 243
    assert all(0 <= seed < 2**31 for seed in seeds)


# --- one call, sent until its reply is usable


class Thinking(ByteBound):
    """Counts with a template that writes more where reasoning is switched off."""

    def __init__(self, more: int) -> None:
        self.more = more

    def count_messages(
        self, messages: Sequence[Message], *, thinking: bool | None = None, tools: object = ()
    ) -> int:
        return super().count_messages(messages) + self.more * (thinking is False)


def call(room: int, unusable: int = 0) -> Call:
    return Call(
        kind="answer",
        state=QuestionState(question=0),
        chunk=None,
        messages=MESSAGES,
        room=room,
        usage=Usage(),
        unusable=unusable,
    )


def text_of(completion: Completion) -> str:
    if not completion.text.strip():
        raise UnusableReply("it is empty")
    return completion.text


async def test_a_first_try_leaves_reasoning_to_the_model() -> None:
    model = ScriptedModel(["fine"])
    reply = await Caller(plan(24), model).ask(call(77), text_of)
    (request,) = model.requests
    assert (request.thinking, request.pattern, request.max_tokens) == (None, None, 77)
    assert reply.parsed == "fine"


@pytest.mark.parametrize("earlier", [0, 1], ids=["new", "after a restart"])
async def test_after_an_unusable_reply_it_is_asked_not_to_reason(earlier: int) -> None:
    counter = Thinking(WINDOW - 1000)
    output = plan(1024, counter).budget.output
    model = ScriptedModel(["", " ", "fine"][earlier:], window=None)
    sent = call(output, unusable=earlier)
    caller = Caller(plan(1024, counter), model)
    await caller.ask(sent, text_of)
    first, *others = model.requests if not earlier else [None, *model.requests]
    if first is not None:
        assert (first.thinking, first.pattern, first.max_tokens) == (None, None, output)
    left = WINDOW - counter.count_messages(MESSAGES, thinking=False)
    assert output // 2 < left < output, "else this test shows nothing"
    for request in others:
        assert (request.thinking, request.pattern) == (False, NOT_EMPTY)
        assert request.max_tokens == left
        assert request.messages == MESSAGES
    assert len({request.seed for request in model.requests}) == len(model.requests)
    assert sent.unusable == 2


async def test_where_the_longer_prompt_leaves_no_room_nothing_is_sent() -> None:
    model = ScriptedModel([""], window=None)
    with pytest.raises(ContextOverflow):
        await Caller(plan(24, Thinking(WINDOW)), model).ask(call(500), text_of)
    assert len(model.requests) == 1


async def test_it_is_not_asked_for_ever() -> None:
    model = ScriptedModel(["", "", "", "fine"])
    sent = call(500)
    with pytest.raises(Unusable, match="the answer call: it is empty, 3 times in a row"):
        await Caller(plan(24), model).ask(sent, text_of)
    assert (sent.unusable, sent.usage.retries) == (3, 3)


async def test_a_failure_is_no_unusable_reply() -> None:
    model = ScriptedModel([ServerBusy("full"), "fine"])
    sent, caller = call(500), Caller(plan(24), model)
    with pytest.raises(ServerBusy):
        await caller.ask(sent, text_of)
    await caller.ask(sent, text_of)
    assert [request.thinking for request in model.requests] == [None, None]
    assert sent.usage.retries == 1


@pytest.mark.parametrize(
    ("text", "matches"),
    [("", False), (" ", False), ("\n a", False), ("a", True), ("a\n\nb ", True), ("日", True)],
)
def test_what_is_not_empty(text: str, matches: bool) -> None:
    assert bool(re.fullmatch(NOT_EMPTY, text)) == matches
