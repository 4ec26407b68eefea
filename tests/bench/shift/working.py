"""Works off a shift by the rules, with messages that a test may change before each reply."""

from __future__ import annotations

import json
from collections.abc import Callable

from memagent.messages import Message, ToolCall
from memagent.tools import Toolset
from memagent_bench.shift.rules import read_messages
from memagent_bench.shift.shift import Shift

Change = Callable[[list[Message]], list[Message]]


async def work(shift: Shift, change: Change = lambda messages: messages, most: int = 400) -> str:
    """The answer, handed in; what `change` returns is what the next reply knows of, and all that is kept."""
    messages = [Message(role="user", content=shift.task)]
    tools = Toolset(shift.tools)
    for step in range(most):
        messages = change(messages)
        move = read_messages(messages).next()
        if isinstance(move, str):
            shift.finish(move)
            return move
        calls = tuple(
            ToolCall(id=f"c{step}-{n}", name=wish.name, arguments=json.dumps(wish.arguments))
            for n, wish in enumerate(move)
        )
        messages.append(Message(role="assistant", content="", tool_calls=calls))
        for call in calls:
            text = (await tools.run(call)).text
            messages.append(Message(role="tool", content=text, tool_call_id=call.id))
    raise AssertionError(f"no answer after {most} replies")
