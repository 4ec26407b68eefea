"""Plays a game with its expert, without a model and with the whole history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from memagent.messages import Message, ToolCall
from memagent.tools import Environment, Toolset
from memagent_bench.games.experts import Expert


class Played(NamedTuple):
    """The outcome of a game."""

    verdict: float
    steps: int


async def play(environment: Environment, expert: Expert, *, max_steps: int = 100_000) -> Played:
    """Lets the expert play until it answers, the game is over, or `max_steps` calls are made.

    Takes time quadratic in the steps, since each reply reads the whole history: some seconds for
    a thousand.
    """
    messages = [Message(role="user", content=environment.task)]
    calls = 0
    while not environment.over:
        reply = expert.reply(messages)
        if isinstance(reply, str):
            environment.finish(reply)
        elif calls < max_steps:
            calls += 1
            messages += await turn(environment, reply)
        else:
            break
    return Played(environment.verdict(), environment.steps)


async def turn(environment: Environment, wish: ToolCall) -> Sequence[Message]:
    """Makes a call; returns its two messages, the assistant's and the tool's."""
    result = await Toolset(environment.tools).run(wish)
    return (
        Message(role="assistant", content="", tool_calls=(wish,)),
        Message(role="tool", content=result.text, tool_call_id=wish.id),
    )
