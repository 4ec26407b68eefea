"""A loop whose model isn't the one that writes the summaries: what it reports, and what the other can't show."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.session.context.strict import SHORT, check_strictly
from tests.session.context.test_feed import LOOK, SYSTEM, TASK, steps

from memagent import ToolAgent
from memagent.errors import ContextOverflow, TokenizerError
from memagent.messages import ChatRequest, Message, ToolSpec, Usage
from memagent.models.scripted import ScriptedModel
from memagent.session.context.buffer import SummaryBuffer
from memagent.tokens import TokenCounter
from memagent.tokens.byte_bound import ByteBound
from memagent.tokens.template import describe_unseen
from memagent.tools import tool

WINDOW = 6000
SPECS = (ToolSpec.from_openai(LOOK),)


class Exact(ByteBound):
    """A tokenizer with a chat template."""

    name = "exact"
    exact = True


class Half(Exact):
    """One with half as many tokens."""

    def count_messages(self, messages: Sequence[Message], **how: Any) -> int:
        return super().count_messages(messages, **how) // 2


class Toolless(Exact):
    """One whose template has no tools."""

    def count_messages(self, messages: Sequence[Message], **how: Any) -> int:
        if how.get("tools"):
            raise TokenizerError(describe_unseen(how["tools"]))
        assert not any(message.tool_calls or message.role == "tool" for message in messages)
        return super().count_messages(messages, **how)


class Unknown(ScriptedModel):
    """A model whose tokenizer isn't known here; its server refuses what exceeds its window."""

    async def counter(self) -> TokenCounter:
        return ByteBound()


def good(request: ChatRequest) -> str:
    return "<summary>done so far</summary>"


def a_buffer(model: ScriptedModel) -> SummaryBuffer:
    return SummaryBuffer(model, working_context=WINDOW, prompts=SHORT, max_summaries=99)


@pytest.mark.parametrize(
    ("model", "share"),
    [
        (ScriptedModel(good, window=WINDOW, counter=Exact()), 0.7),
        (Unknown(good, window=WINDOW, counter=Half()), 0.3),
    ],
    ids=["counted", "unknown"],
)
async def test_reports_of_fewer_tokens_dont_overflow_the_model_that_summarises(
    model: ScriptedModel, share: float
) -> None:
    history, usage = [SYSTEM, TASK], None
    async with a_buffer(model) as buffer:
        for number in range(100):
            sent = await buffer.feed(history, tools=[LOOK], usage=usage)
            messages = [Message.from_openai(message) for message in sent]
            check_strictly(messages)
            took = int(share * ByteBound().count_messages(messages, tools=SPECS))
            assert took < buffer.limit
            usage = Usage(prompt_tokens=took)
            history += steps(1, 400, number)
        assert buffer.summaries > 2


async def test_a_model_that_refuses_whatever_it_is_sent_ends_in_its_error() -> None:
    overflow = ContextOverflow("too long")
    model = ScriptedModel(lambda request: overflow, window=WINDOW, counter=Exact())
    history = [SYSTEM, TASK, *steps(1, 400)]
    async with a_buffer(model) as buffer:
        await buffer.feed(history)
        history += steps(1, 400, 1)
        await buffer.feed(history, usage=Usage(prompt_tokens=600))
        for _ in range(2):
            with pytest.raises(ContextOverflow, match="too long"):
                await buffer.feed([*history, *steps(30, 400, 2)])
        assert len(model.requests) == 3  # the first feed counts once more, without reports


async def test_a_model_without_tools_is_shown_calls_as_text() -> None:
    model = ScriptedModel(good, window=WINDOW, counter=Toolless())
    history = [SYSTEM, TASK]
    async with a_buffer(model) as buffer:
        for number in range(60):
            sent = await buffer.feed(history, tools=[LOOK])
            check_strictly([Message.from_openai(message) for message in sent])
            assert sent[2:] == history[len(history) - len(sent) + 2 :]
            assert buffer.tools == SPECS
            history += steps(1, 150, number)
        assert buffer.summaries > 1
        sent = await buffer.feed([SYSTEM, TASK, *history[2:]], tools=[])
        assert sent[-1] is history[-1]
    first, *_ = model.requests
    assert (first.tools, first.tool_choice) == ((), None)
    text = "\n".join(message.content for message in first.messages)
    assert '<call>{"name": "look", "arguments": {"n": 0' in text
    assert '<result name="look">\nresult 0' in text


async def test_a_template_that_fails_without_tools_too_is_an_error_at_once() -> None:
    class Broken(Exact):
        def count_messages(self, messages: Sequence[Message], **how: Any) -> int:
            raise TokenizerError("no system role")

    model = ScriptedModel(good, window=WINDOW, counter=Broken())
    with pytest.raises(TokenizerError, match="no system role"):
        await a_buffer(model).feed([SYSTEM, TASK], tools=[LOOK])


async def test_an_agent_whose_own_model_has_no_tools_says_so() -> None:
    @tool
    def look() -> str:
        """Looks."""
        return "seen"

    async with ToolAgent(ScriptedModel(good, counter=Toolless()), [look], store=None) as agent:
        with pytest.raises(TokenizerError, match="protocol='text'"):
            await agent.arun("Look.")
