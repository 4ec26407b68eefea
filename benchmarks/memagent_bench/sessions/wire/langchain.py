"""LangChain's agent with its middleware, and Deep Agents. Importing this module imports LangChain (extra `peers`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import langsmith
from langchain.agents import create_agent
from langchain.agents.middleware import (
    AgentMiddleware,
    ClearToolUsesEdit,
    ContextEditingMiddleware,
    SummarizationMiddleware,
)
from langchain_core.messages import HumanMessage
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from memagent.tools import Tool
from memagent_bench.sessions.seat import SessionEnd
from memagent_bench.sessions.wire.post import ENDLESS, SYSTEM, Post

# Their types are partly unknown.
_LANGSMITH: Any = langsmith
TRIGGER = 0.8
"""Share of the window at which summarising starts, as in LangChain's documentation."""
KEEP, TIGHT = 0.3, 0.1
"""Shares of the window kept after a summary: LangChain's documentation's, and that of Deep Agents."""
CLEAR = 0.5
"""Share of the window at which old results are cleared."""


async def play_defaults(post: Post) -> SessionEnd:
    """Plays with `SummarizationMiddleware`, with only the trigger set."""
    return await _play(post, [SummarizationMiddleware(_model(post), trigger=_of(post, TRIGGER))])


async def play_tuned(post: Post) -> SessionEnd:
    """Plays the same, tuned to the window: keeps a share of the window, and summarises all of the rest."""
    return await _play(post, [_summaries(post, KEEP)])


async def play_tight(post: Post) -> SessionEnd:
    """Plays the same, and keeps less."""
    return await _play(post, [_summaries(post, TIGHT)])


async def play_clearing(post: Post) -> SessionEnd:
    """Plays with `ClearToolUsesEdit`: from half of the window on, clears all results but the last three."""
    edit = ClearToolUsesEdit(trigger=int(CLEAR * post.window))
    return await _play(post, [ContextEditingMiddleware(edits=[edit])])


async def play_deep(post: Post) -> SessionEnd:
    """Plays with unmodified Deep Agents, which take the window from the model's profile."""
    from deepagents import create_deep_agent

    agent: Any = create_deep_agent(_model(post), tools=_tools(post), system_prompt=SYSTEM)
    return await _run(agent, post)


async def _play(post: Post, middleware: Sequence[AgentMiddleware[Any, Any, Any]]) -> SessionEnd:
    agent: Any = create_agent(
        _model(post), _tools(post), system_prompt=SYSTEM, middleware=middleware
    )
    return await _run(agent, post)


async def _run(agent: Any, post: Post) -> SessionEnd:
    with _LANGSMITH.tracing_context(enabled=False):
        state = await agent.ainvoke(
            {"messages": [HumanMessage(post.task)]}, {"recursion_limit": ENDLESS}
        )
    return SessionEnd(answer=state["messages"][-1].text)


def _summaries(post: Post, keep: float) -> AgentMiddleware[Any, Any, Any]:
    return SummarizationMiddleware(
        _model(post),
        trigger=_of(post, TRIGGER),
        keep=_of(post, keep),
        trim_tokens_to_summarize=None,
    )


def _of(post: Post, share: float) -> Any:
    return ("tokens", int(share * post.window))


def _model(post: Post) -> ChatOpenAI:
    return ChatOpenAI(
        model=post.model,
        base_url=post.url,
        api_key=SecretStr("none"),
        max_retries=0,
        profile={"max_input_tokens": post.window},
    )


def _tools(post: Post) -> list[StructuredTool]:
    return [_tool(post, tool) for tool in post.tools]


def _tool(post: Post, tool: Tool) -> StructuredTool:
    async def run(**arguments: Any) -> str:
        return await post.run(tool.name, arguments)

    return StructuredTool.from_function(
        coroutine=run,
        name=tool.name,
        description=tool.spec.description,
        args_schema=dict(tool.spec.parameters),
        infer_schema=False,
    )
