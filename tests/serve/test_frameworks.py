"""Other people's agents against the endpoint: they change nothing but the URL."""

from __future__ import annotations

from typing import Any

import pytest
from blockbuster import BlockBuster
from openai import AsyncOpenAI
from tests.integrations.book import SYSTEM, TASK, Book, Player
from tests.models.chat_server import CHATML_TOOLS
from tests.serve.conftest import MODEL, Serve
from tests.serve.engine import WINDOW, Engine, read_or_echo
from tests.serve.test_reading import DOCUMENT, FACT, QUESTION
from tests.serve.test_responses import Responder

pytestmark = [
    pytest.mark.extra,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),  # theirs
]


@pytest.fixture(autouse=True)
def frameworks_may_block(blockbuster: BlockBuster) -> None:
    """They run in the tests' event loop, the endpoint in one of its own."""
    blockbuster.deactivate()


@pytest.fixture
def player(engine: Engine) -> Player:
    engine.be_vllm(WINDOW, template=CHATML_TOOLS)
    engine.default = player = Player(Book(90), WINDOW)
    engine.others["/v1/responses"] = Responder(player)
    return player


def check(player: Player, answer: str) -> None:
    assert answer == player.book.answer
    assert player.refused == []
    assert player.summaries > 1


@pytest.mark.parametrize("streams", [False, True])
async def test_langchain_agent(player: Player, url: str, streams: bool) -> None:
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    @tool
    async def read(page: int) -> str:
        """Read a page."""
        return player.book.text(page)

    chat = ChatOpenAI(
        model=MODEL, base_url=url, api_key=SecretStr("none"), streaming=streams, max_retries=0
    )
    agent: Any = create_agent(chat, [read], system_prompt=SYSTEM)
    config = {"recursion_limit": 10_000}
    done = await agent.ainvoke({"messages": [HumanMessage(TASK)]}, config)
    check(player, done["messages"][-1].text)


@pytest.mark.parametrize("streams", [False, True])
async def test_langchain_reads_a_document(engine: Engine, serve: Serve, streams: bool) -> None:
    from langchain_core.messages import HumanMessage
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    engine.default = read_or_echo
    url = serve(reading={"gate": "update"})
    chat = ChatOpenAI(model=MODEL, base_url=url, api_key=SecretStr("none"), max_retries=0)
    parts: Any = [{"type": "text", "text": text} for text in (DOCUMENT, QUESTION)]
    message = HumanMessage(parts)
    if streams:
        pieces = [piece async for piece in chat.astream([message])]
        assert "".join(piece.text for piece in pieces) == FACT
    else:
        reply = await chat.ainvoke([message])
        assert reply.text == FACT
        assert reply.usage_metadata
        assert reply.usage_metadata["input_tokens"] > 1000


@pytest.mark.parametrize("form", ["chat", "responses"])
async def test_agents_sdk(player: Player, url: str, form: str) -> None:
    from agents import (
        Agent,
        ModelSettings,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )

    set_tracing_disabled(True)

    @function_tool
    async def read(page: int) -> str:
        """Read a page."""
        return player.book.text(page)

    kind = OpenAIChatCompletionsModel if form == "chat" else OpenAIResponsesModel
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        agent = Agent(
            "reader",
            instructions=SYSTEM,
            tools=[read],
            model=kind(MODEL, client),
            model_settings=ModelSettings(max_tokens=100),
        )
        done = await Runner.run(agent, TASK, max_turns=10_000)
    check(player, done.final_output)
