"""Pydantic AI with a history processor. Importing this module imports it (extra `peers`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from openai import AsyncOpenAI
from pydantic_ai import Agent, UsageLimits
from pydantic_ai import Tool as FunctionTool
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from memagent.tools import Tool
from memagent_bench.sessions.seat import SessionEnd
from memagent_bench.sessions.wire.post import SYSTEM, Post

SHARE = 0.7
"""Share of the window that the newest turns may take."""


async def play_newest(post: Post) -> SessionEnd:
    """Plays with a processor that keeps the task and the newest turns, and no call without its results."""

    def keep_newest(messages: list[ModelMessage]) -> list[ModelMessage]:
        replies = [n for n, message in enumerate(messages) if isinstance(message, ModelResponse)]
        start = next((n for n in replies if _tokens(messages[n:]) < SHARE * post.window), None)
        return messages if start is None else [messages[0], *messages[start:]]

    async with AsyncOpenAI(base_url=post.url, api_key="none", max_retries=0) as client:
        agent = Agent(
            OpenAIChatModel(post.model, provider=OpenAIProvider(openai_client=client)),
            instructions=SYSTEM,
            tools=[_tool(post, tool) for tool in post.tools],
            capabilities=[ProcessHistory(keep_newest)],
        )
        limits = UsageLimits(request_limit=None)
        result = await agent.run(post.task, usage_limits=limits)
    return SessionEnd(answer=result.output)


def _tokens(messages: Sequence[ModelMessage]) -> float:
    """Estimates tokens as four characters each, as is common without a tokenizer."""
    parts: Any = (part for message in messages for part in message.parts)
    return sum(len(str(getattr(part, "content", None) or part)) for part in parts) / 4


def _tool(post: Post, tool: Tool) -> FunctionTool[Any]:
    async def run(**arguments: Any) -> str:
        return await post.run(tool.name, arguments)

    return FunctionTool.from_schema(
        run,
        name=tool.name,
        description=tool.spec.description,
        json_schema=dict(tool.spec.parameters),
    )
