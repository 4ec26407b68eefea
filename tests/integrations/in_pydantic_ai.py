"""Pydantic AI's agent."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI
from pydantic_ai import Agent, UsageLimits, capture_run_messages
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from tests.integrations.book import SYSTEM, TASK, Killed
from tests.integrations.loops import Case, Played

from memagent.integrations.pydantic_ai import process_history


async def play(case: Case) -> Played:
    """Plays the case to its end, or to that of the process."""
    history = ModelMessagesTypeAdapter.validate_json(case.saved) if case.saved else None
    task = None if case.saved else TASK
    limits = UsageLimits(request_limit=None)
    async with AsyncOpenAI(base_url=case.url, api_key="none", max_retries=0) as client:
        model = OpenAIChatModel("tiny", provider=OpenAIProvider(openai_client=client))
        agent = Agent(model, instructions=SYSTEM, capabilities=[process_history(case.buffer)])

        @agent.tool_plain
        async def read(page: int) -> str:
            """Read a page."""
            return case.book.text(page)

        with capture_run_messages() as messages:
            try:
                if case.streams:
                    pieces: list[str] = []
                    async with agent.run_stream_events(
                        task, message_history=history, usage_limits=limits
                    ) as events:
                        async for event in events:
                            pieces.append(event.event_kind)
                            if event.event_kind == "agent_run_result":
                                answer = event.result.output
                    assert len(pieces) > 600
                else:
                    run = await agent.run(task, message_history=history, usage_limits=limits)
                    answer = run.output
            except Killed:
                return Played(ModelMessagesTypeAdapter.dump_json(messages))
    return Played(ModelMessagesTypeAdapter.dump_json(messages), answer)


def orphaned() -> Any:
    """A history with calls and results that lack each other."""
    calls = [ToolCallPart("read", "{}", name) for name in "ab"]
    messages = [
        ModelRequest([UserPromptPart(TASK)]),
        ModelResponse(calls),
        ModelRequest([ToolReturnPart("read", "No page.", "a")]),
        ModelResponse([TextPart("I begin anew.")]),
        ModelRequest(
            [ToolReturnPart("read", "Nobody asked for this.", "c"), UserPromptPart("Do.")]
        ),
    ]
    return ModelMessagesTypeAdapter.dump_json(messages)
