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
from memagent_bench.sessions.wire.post import ENDLESS, SYSTEM, Post

# Their types are unknown in part.
_LANGSMITH: Any = langsmith
TRIGGER, KEEP = 0.8, 0.1
"""Shares of the window: when a summary is due, and what stays behind it."""
CLEAR = 0.5
"""Share of the window from which on old results are cleared."""


async def play_defaults(post: Post) -> str:
    """`SummarizationMiddleware` that is told when a summary is due, and nothing else."""
    trigger: Any = ("tokens", int(TRIGGER * post.window))
    return await _play(post, [SummarizationMiddleware(_model(post), trigger=trigger)])


async def play_tuned(post: Post) -> str:
    """The same, tuned to the window: it keeps a tenth, and summarises all of the rest."""
    trigger: Any = ("tokens", int(TRIGGER * post.window))
    keep: Any = ("tokens", int(KEEP * post.window))
    tuned = SummarizationMiddleware(
        _model(post), trigger=trigger, keep=keep, trim_tokens_to_summarize=None
    )
    return await _play(post, [tuned])


async def play_clearing(post: Post) -> str:
    """`ClearToolUsesEdit`: results but for the last three are cleared from half of the window on."""
    edit = ClearToolUsesEdit(trigger=int(CLEAR * post.window))
    return await _play(post, [ContextEditingMiddleware(edits=[edit])])


async def play_deep(post: Post) -> str:
    """Deep Agents as they come; they take the window from the model's profile."""
    from deepagents import create_deep_agent

    agent: Any = create_deep_agent(_model(post), tools=_tools(post), system_prompt=SYSTEM)
    return await _run(agent, post)


async def _play(post: Post, middleware: Sequence[AgentMiddleware[Any, Any, Any]]) -> str:
    agent: Any = create_agent(
        _model(post), _tools(post), system_prompt=SYSTEM, middleware=middleware
    )
    return await _run(agent, post)


async def _run(agent: Any, post: Post) -> str:
    with _LANGSMITH.tracing_context(enabled=False):
        state = await agent.ainvoke(
            {"messages": [HumanMessage(post.task)]}, {"recursion_limit": ENDLESS}
        )
    return state["messages"][-1].text


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
