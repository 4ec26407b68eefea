"""Prompts are counted as they would be rendered."""

from collections.abc import Sequence

import pytest

from memagent.messages import Message, ToolCall, ToolSpec
from memagent.tokens import ByteBound
from memagent_bench.length_tokens import length_counter
from memagent_bench.sessions.counter import CONTROL, TOOLS_TEXT, ChatCounter

CALL = ToolCall(id="c1", name="look", arguments='{"at": "the door"}')
HISTORY = (
    Message(role="system", content="You solve a task."),
    Message(role="user", content="Which door? 12,345 of them."),
    Message(role="assistant", content="", tool_calls=(CALL, CALL)),
    Message(role="tool", content="It is shut.", tool_call_id="c1"),
    Message(role="user", content="Go on."),
)


def rendered(messages: Sequence[Message]) -> list[str]:
    """The pieces of the prompt; marks are `None`-like single pieces of one token."""
    pieces: list[str] = []
    for message in messages:
        if message.role == "tool":
            pieces += ["<m>", "<m>", f"user\n\n{message.content}\n\n", "<m>", "<m>"]
            continue
        pieces += ["<m>", f"{message.role}\n{message.content}\n"]
        for call in message.tool_calls:
            body = f'\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n'
            pieces += ["<m>", body, "<m>"]
        pieces += ["<m>"]
    return [*pieces, "<m>", "assistant\n"]


@pytest.mark.parametrize("length", range(1, len(HISTORY) + 1))
def test_a_prompt_is_the_sum_of_its_pieces(length: int) -> None:
    gpt2 = length_counter(None)
    counter = ChatCounter(gpt2)
    wanted = sum(1 if p == "<m>" else gpt2.count(p) for p in rendered(HISTORY[:length]))
    assert counter.count_messages(HISTORY[:length]) == wanted
    assert counter.count_messages(HISTORY[:length]) == wanted  # remembered ones too


def test_tools_are_counted() -> None:
    counter = ChatCounter(ByteBound())
    bare = counter.count_messages(HISTORY)
    one = counter.count_messages(HISTORY, tools=(ToolSpec(name="look"),))
    two = counter.count_messages(HISTORY, tools=(ToolSpec(name="look"), ToolSpec(name="open")))
    assert one > bare + TOOLS_TEXT
    assert two - one == one - bare - TOOLS_TEXT + 1  # and a line end between them


def test_it_says_what_it_counts_with() -> None:
    counter = ChatCounter(ByteBound())
    assert counter.name == "chatml:utf8-bytes"
    assert counter.control_tokens >= CONTROL
    assert counter.count("four") == counter.measure("four").tokens == 4
