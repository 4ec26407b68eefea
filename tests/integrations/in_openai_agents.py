"""The OpenAI Agents SDK."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from tests.integrations.book import GO_ON, SYSTEM, TASK, Killed
from tests.integrations.loops import Case, Played

from memagent.integrations.openai_agents import summary_filter


async def play(case: Case) -> Played:
    """Plays the case to its end, or to that of the process."""
    set_tracing_disabled(True)

    @function_tool(failure_error_function=None)
    async def read(page: int) -> str:
        """Read a page."""
        return case.book.text(page)

    goes_on = isinstance(case.saved, SQLiteSession)
    session = case.saved if goes_on else SQLiteSession("s")
    if case.saved and not goes_on:
        *earlier, last = case.saved
        await session.add_items(earlier)
        start: Any = [last]
    else:
        start = [] if goes_on else TASK
    async with AsyncOpenAI(base_url=case.url, api_key="none", max_retries=0) as client:
        agent = Agent(
            "reader",
            instructions=SYSTEM,
            tools=[read],
            model=OpenAIChatCompletionsModel("tiny", client),
        )
        settings: Any = {
            "session": session,
            "max_turns": 10_000,
            "run_config": RunConfig(
                call_model_input_filter=summary_filter(case.buffer),
                session_input_callback=lambda history, new: [*history, *new],
            ),
        }
        try:
            if case.streams:
                streamed = Runner.run_streamed(agent, start, **settings)
                kinds = [event.type async for event in streamed.stream_events()]
                assert kinds.count("raw_response_event") > 600
                answer = streamed.final_output
            else:
                answer = (await Runner.run(agent, start or GO_ON, **settings)).final_output
        except Killed:
            return Played(session)
    session.close()
    return Played(session, answer)


def orphaned() -> Any:
    """A history with calls and results that lack each other."""
    call = {"type": "function_call", "name": "read", "arguments": "{}"}
    result = {"type": "function_call_output"}
    return [
        {"role": "user", "content": TASK},
        call | {"call_id": "a"},
        call | {"call_id": "b"},
        result | {"call_id": "a", "output": "No page."},
        {"role": "assistant", "content": "I begin anew."},
        result | {"call_id": "c", "output": "Nobody asked for this."},
        {"role": "user", "content": "Do."},
    ]
