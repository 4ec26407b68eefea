"""The OpenAI Agents SDK with its trimmer. Importing this module imports the SDK (extra `peers`)."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    FunctionTool,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    SQLiteSession,
)
from agents.extensions import ToolOutputTrimmer
from openai import AsyncOpenAI

from memagent.tools import Tool
from memagent_bench.sessions.seat import SessionEnd
from memagent_bench.sessions.wire.post import ENDLESS, SYSTEM, Post


async def play_trimmer(post: Post) -> SessionEnd:
    """Plays with an unmodified `ToolOutputTrimmer`, and a session."""
    async with AsyncOpenAI(base_url=post.url, api_key="none", max_retries=0) as client:
        agent = Agent(
            "worker",
            instructions=SYSTEM,
            tools=[_tool(post, tool) for tool in post.tools],
            model=OpenAIChatCompletionsModel(post.model, client),
        )
        config = RunConfig(call_model_input_filter=ToolOutputTrimmer(), tracing_disabled=True)
        session = SQLiteSession("shift")
        try:
            result = await Runner.run(
                agent, post.task, session=session, max_turns=ENDLESS, run_config=config
            )
        finally:
            session.close()
    return SessionEnd(answer=str(result.final_output))


def _tool(post: Post, tool: Tool) -> FunctionTool:
    async def run(_: Any, arguments: str) -> str:
        return await post.run(tool.name, arguments)

    return FunctionTool(
        name=tool.name,
        description=tool.spec.description,
        params_json_schema=dict(tool.spec.parameters),
        on_invoke_tool=run,
        strict_json_schema=False,
    )
