"""`Post`: what each loop is given."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from memagent.messages import ToolCall
from memagent.tools import Tool, Toolset

SYSTEM = "You work through a task with tools. A message without a call is your final answer."
"""For loops without a system prompt. Every word of it is paid for at each step."""
ENDLESS = 1_000_000
"""Limit for frameworks that limit steps: the server ends a session that makes no progress."""


@dataclass(frozen=True)
class Post:
    """A task, and the server to work at."""

    url: str
    model: str
    window: int
    """The server's window, which each loop is tuned to."""
    task: str
    tools: tuple[Tool, ...]

    async def run(self, name: str, arguments: dict[str, Any] | str) -> str:
        """Returns a tool's output, including failures: the same for every loop."""
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        output = await Toolset(self.tools).run(ToolCall(id="call", name=name, arguments=text))
        return output.text
