"""LangChain's agent."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import SecretStr
from tests.integrations.book import SYSTEM, TASK, Killed
from tests.integrations.loops import Case, Played

from memagent.integrations.langchain import SummaryMiddleware


async def play(case: Case) -> Played:
    """Plays the case to its end, or to that of the process."""

    @tool
    async def read(page: int) -> str:
        """Read a page."""
        return case.book.text(page)

    saver, start = InMemorySaver(), {"messages": [HumanMessage(TASK)]}
    if isinstance(case.saved, InMemorySaver):
        saver, start = case.saved, None
    elif case.saved:
        start = {"messages": case.saved}
    agent: Any = create_agent(
        ChatOpenAI(
            model="tiny",
            base_url=case.url,
            api_key=SecretStr("none"),
            streaming=case.streams,
            max_retries=0,
        ),
        [read],
        system_prompt=SYSTEM,
        middleware=[SummaryMiddleware(case.buffer)],
        checkpointer=saver,
    )
    config = {"recursion_limit": 10_000, "configurable": {"thread_id": "t"}}
    try:
        if case.streams:
            pieces = [
                piece.text
                async for piece, _ in agent.astream(start, config, stream_mode="messages")
                if isinstance(piece, AIMessage)
            ]
            assert len(pieces) > 600  # more than one a step
        else:
            await agent.ainvoke(start, config)
    except Killed:
        return Played(saver)
    state = await agent.aget_state(config)
    messages = state.values["messages"]
    assert messages[0].content == TASK  # the state keeps everything
    assert sum(isinstance(message, ToolMessage) for message in messages) >= len(case.book.read)
    return Played(saver, messages[-1].text)


def play_sync(case: Case) -> str:
    """Plays the case without an event loop."""

    @tool
    def read(page: int) -> str:
        """Read a page."""
        return case.book.text(page)

    agent: Any = create_agent(
        ChatOpenAI(model="tiny", base_url=case.url, api_key=SecretStr("none"), max_retries=0),
        [read],
        system_prompt=SYSTEM,
        middleware=[SummaryMiddleware(case.buffer)],
    )
    start = {"messages": [HumanMessage(TASK)]}
    return agent.invoke(start, {"recursion_limit": 10_000})["messages"][-1].text


def orphaned() -> Any:
    """A history with calls and results that lack each other."""
    calls: Any = [{"name": "read", "args": {}, "id": name, "type": "tool_call"} for name in "ab"]
    return [
        HumanMessage(TASK),
        AIMessage("", tool_calls=calls),
        ToolMessage("No page.", tool_call_id="a"),
        AIMessage("I begin anew."),
        ToolMessage("Nobody asked for this.", tool_call_id="c"),
        HumanMessage("Do."),
    ]
