"""Desks, and requests for them."""

from __future__ import annotations

from typing import Any

from memagent.tokens import ByteBound
from memagent_bench.sessions.counter import ChatCounter
from memagent_bench.sessions.wire.desk import Desk
from memagent_bench.shift.shift import Shift


def desk(window: int = 20_000, *, difficulty: int = 30, max_steps: int = 100, **how: Any) -> Desk:
    """Counts in bytes."""
    shift = Shift(seed=1, difficulty=difficulty)
    return Desk(shift, ChatCounter(ByteBound()), window, max_steps, **how)


def body(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A request that offers tools."""
    shift = Shift(seed=1, difficulty=30)
    task = {"role": "user", "content": shift.task}
    return {
        "messages": [task, *messages],
        "tools": [t.spec.to_openai() for t in shift.tools],
    } | more


def calling(*ids: str) -> dict[str, Any]:
    """An assistant's message with calls of these ids."""
    function = {"name": "read_ticket", "arguments": '{"ticket": 1}'}
    calls = [{"id": name, "type": "function", "function": function} for name in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(name: str, text: str = "Ticket 1 is blue and open.") -> dict[str, Any]:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": name, "content": text}
