"""Sessions that forget: what a context may look like after a summary, and an expert that plays in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from memagent.messages import Message, ToolCall
from memagent.tokens.byte_bound import ByteBound
from memagent.tools import Toolset
from memagent_bench.games import Expert, Game

Turn = tuple[ToolCall, str]
Shown = Callable[[Sequence[Turn]], list[Message]]


class Forgot(NamedTuple):
    verdict: float
    steps: int
    """Calls made, those that were made again too."""
    summaries: int
    largest: int
    """Bytes of the largest summary."""


async def told(game: Game, name: str, /, **arguments: Any) -> str:
    """What a tool of a game tells."""
    return (await Toolset(game.tools).run(call(name, **arguments))).text


def native(turns: Sequence[Turn]) -> list[Message]:
    return [
        message
        for call, result in turns
        for message in (
            Message(role="assistant", content="", tool_calls=(call,)),
            Message(role="tool", content=result, tool_call_id=call.id),
        )
    ]


def as_text(turns: Sequence[Turn]) -> list[Message]:
    messages: list[Message] = []
    for call, result in turns:
        wish = f'<call>\n{{"name": "{call.name}", "arguments": {call.arguments}}}\n</call>'
        shown = f'<result name="{call.name}">\n{result}\n</result>'
        messages.append(Message(role="assistant", content=f"I go on.\n{wish}"))
        messages.append(Message(role="user", content=shown))
    return messages


def continuation(task: str, summary: str, ledger: Sequence[str], again: Sequence[Turn]) -> Message:
    """Task, summary, what was called, and what is shown again: one message of the user's."""
    lines = "\n".join(f"{call.name}({call.arguments}) -> {result}" for call, result in again)
    parts = [task, f"This is part 2.\n{summary}", *ledger, f"<result>\n{lines}\n</result>"]
    return Message(role="user", content="\n\n".join(parts))


async def forgetful(
    environment: Game, expert: Expert, *, every: int, shown: Shown, most: int
) -> Forgot:
    """Plays with a summary after each `every` turns, of which the last one is not part.

    If its tool is idempotent it is dropped, so that it has to be called again; else it is shown again. Gives up
    after `most` calls.
    """
    tools = Toolset(environment.tools)
    prompt = Message(role="user", content=environment.task)
    turns: list[Turn] = []
    ledger: list[str] = []
    summaries = largest = 0
    while environment.steps < most:
        context = [prompt, *shown(turns)]
        reply = expert.reply(context)
        if isinstance(reply, str):
            environment.finish(reply)
            break
        output = await tools.run(reply)
        assert output.ok, output.text
        turns.append((reply, output.text))
        if len(turns) <= every:
            continue
        call, result = turns.pop()
        asked = Message(role="user", content="Write it inside <summary> and </summary>.")
        summary = expert.reply([prompt, *shown(turns), asked], kind="summary")
        assert isinstance(summary, str)
        summaries += 1
        largest = max(largest, ByteBound().count(summary))
        ledger = [f"read: {one.name}({one.arguments})" for one, _ in turns]
        again = [] if tools[call.name].idempotent else [(call, result)]
        prompt, turns = continuation(environment.task, summary, ledger, again), []
    return Forgot(environment.verdict(), environment.steps, summaries, largest)


def call(name: str, /, **arguments: object) -> ToolCall:
    return ToolCall(id="call-0", name=name, arguments=json.dumps(arguments))
