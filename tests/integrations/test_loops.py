"""Each loop works hundreds of steps in a small window, at a server that enforces it and the pairing of calls."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from blockbuster import BlockBuster
from tests.integrations.book import Book, Player, serving
from tests.integrations.loops import Case, Played

from memagent import SummaryBuffer, open_model
from memagent.errors import ConfigError

OTHERS = ("langchain", "openai_agents", "pydantic_ai")
LOOPS = ["openai", *(pytest.param(name, marks=pytest.mark.extra) for name in OTHERS)]
WINDOW = 2048


@pytest.fixture(autouse=True)
def frameworks_may_block(blockbuster: BlockBuster) -> None:
    """It's memagent's own event loop that must not block; its tests see to that."""
    blockbuster.deactivate()


@asynccontextmanager
async def opened(url: str, state: str | None = None) -> AsyncIterator[SummaryBuffer]:
    """A buffer, and the model that writes its summaries."""
    model = open_model("vllm:tiny", base_url=url)
    settings: dict[str, Any] = {"max_summaries": 999, "idempotent": {"read"}}
    try:
        async with (
            SummaryBuffer.from_state(json.loads(state), model, **settings)
            if state
            else SummaryBuffer(model, **settings)
        ) as buffer:
            yield buffer
    finally:
        await model.aclose()


async def play(name: str, case: Case) -> Played:
    return await importlib.import_module(f"tests.integrations.in_{name}").play(case)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", LOOPS)
async def test_three_hundred_steps(name: str, streams: bool) -> None:
    player = Player(book := Book(450), WINDOW)
    with serving(player) as server:
        async with opened(server.url) as buffer:
            played = await play(name, Case(server.url, buffer, book, streams=streams))
    assert player.refused == []
    assert played.answer == book.answer
    assert sorted(book.read) == list(range(1, 451))  # none twice
    assert player.acts > 300
    assert player.summaries > 10
    assert (player.streamed > 300) is streams
    assert player.longest > 0.7 * WINDOW


@pytest.mark.parametrize("name", LOOPS)
async def test_results_larger_than_the_window(name: str) -> None:
    player = Player(book := Book(30, huge=(3, 4, 10, 11, 12, 20)), WINDOW)
    with serving(player) as server:
        async with opened(server.url) as buffer:
            played = await play(name, Case(server.url, buffer, book))
    assert player.refused == []
    assert played.answer == book.answer
    assert {*book.read} == {*range(1, 31)}


@pytest.mark.parametrize("name", LOOPS)
async def test_a_restart_midway(name: str) -> None:
    player = Player(book := Book(90, stop_at=60), WINDOW)
    with serving(player) as server:
        async with opened(server.url) as buffer:
            played = await play(name, Case(server.url, buffer, book))
            assert played.answer is None
            summaries, state = player.summaries, json.dumps(buffer.state())
        assert summaries > 1
        async with opened(server.url, state) as buffer:
            played = await play(name, Case(server.url, buffer, book, saved=played.saved))
            assert buffer.summaries > json.loads(state)["context"]["past"]["stage"] > 1
    assert player.refused == []
    assert played.answer == book.answer
    assert player.summaries < 2 * summaries  # the first part isn't summarised again


@pytest.mark.parametrize("name", LOOPS)
async def test_orphaned_calls_and_results(name: str) -> None:
    player = Player(book := Book(40), WINDOW)
    history = importlib.import_module(f"tests.integrations.in_{name}").orphaned()
    with serving(player) as server:
        async with opened(server.url) as buffer:
            played = await play(name, Case(server.url, buffer, book, saved=history))
    assert player.refused == []
    assert played.answer == book.answer


@pytest.mark.extra
async def test_langchain_without_an_event_loop() -> None:
    from tests.integrations.in_langchain import play_sync

    player = Player(book := Book(60), WINDOW)
    with serving(player) as server:
        async with opened(server.url) as buffer:
            answer = await asyncio.to_thread(play_sync, Case(server.url, buffer, book))
    assert player.refused == []
    assert answer == book.answer
    assert player.summaries > 2


@pytest.mark.extra
async def test_pictures_come_through_pydantic_ai() -> None:
    from pydantic_ai import Agent, BinaryContent, UsageLimits
    from pydantic_ai.messages import (
        ModelMessage,
        ModelRequest,
        ModelResponse,
        TextPart,
        ToolCallPart,
        UserPromptPart,
    )
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from memagent import ScriptedModel
    from memagent.integrations.pydantic_ai import process_history

    picture, seen = BinaryContent(b"png" * 5000, media_type="image/png"), list[int]()

    def look(messages: list[ModelMessage], info: AgentInfo) -> Any:
        first = messages[0]
        assert isinstance(first, ModelRequest)
        shown = [p.content for p in first.parts if isinstance(p, UserPromptPart)]
        parts = [part for content in shown for part in content]
        assert [p.data for p in parts if isinstance(p, BinaryContent)] == [picture.data]
        seen.append(len(messages))
        step = len(seen)
        return ModelResponse(
            [TextPart("done")] if step == 60 else [ToolCallPart("read", {"page": step})]
        )

    writer = ScriptedModel(lambda request: "<summary>seen</summary>", window=9000)
    async with SummaryBuffer(writer, working_context=9000, max_summaries=99) as buffer:
        agent = Agent(FunctionModel(look), capabilities=[process_history(buffer)])

        @agent.tool_plain
        def read(page: int) -> str:
            """Read a page."""
            return f"page {page} " * 30

        result = await agent.run(
            ["What is this?", picture], usage_limits=UsageLimits(request_limit=None)
        )
        assert buffer.summaries > 2
    assert result.output == "done"
    assert max(seen) < 40
    assert all("data" not in str(m.extra) for r in writer.requests for m in r.messages)


@pytest.mark.extra
@pytest.mark.parametrize("prompt", ["system_prompt", "instructions"])
async def test_pydantic_ai_runs_without_a_prompt_of_the_user(prompt: Any) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import AgentInfo, FunctionModel

    from memagent import ScriptedModel
    from memagent.integrations.pydantic_ai import process_history

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        told = str(messages[0]) if prompt == "system_prompt" else info.instructions
        assert "Read a page." in (told or "")
        done = len(messages) > 2
        return ModelResponse([TextPart("done") if done else ToolCallPart("read", {})])

    async with SummaryBuffer(ScriptedModel([], window=8192), working_context=8000) as buffer:
        settings: Any = {prompt: "Read a page.", "capabilities": [process_history(buffer)]}
        agent = Agent(FunctionModel(model), **settings)

        @agent.tool_plain
        def read() -> str:
            """Read a page."""
            return "page"

        assert (await agent.run()).output == "done"


@pytest.mark.extra
def test_langchain_blocks_that_openai_lacks_come_through() -> None:
    from langchain.agents.middleware import ModelRequest
    from langchain_core.messages import HumanMessage

    from memagent import ScriptedModel
    from memagent.integrations.langchain import SummaryMiddleware

    def send(block: Any) -> None:
        messages: Any = [HumanMessage([{"type": "text", "text": "See."}, block])]
        buffer = SummaryBuffer(ScriptedModel([], window=8192), working_context=8000)
        request = ModelRequest(model=cast("Any", None), messages=messages)
        sent: list[Any] = []
        SummaryMiddleware(buffer).wrap_model_call(request, sent.append)
        assert sent[0].messages[0] is messages[0]

    send({"type": "video", "url": "https://example.com/a.mp4"})
    send({"type": "image", "file_id": "f1"})
    with pytest.raises(ConfigError, match="JSON"):
        send({"type": "image", "source": {"bytes": b"png"}, "format": "png"})


TEXT = "The key is 4711. " * 100


@pytest.mark.extra
@pytest.mark.parametrize(
    "block",
    [
        {"type": "text-plain", "text": TEXT, "mime_type": "text/plain"},
        {"type": "file", "source_type": "text", "text": TEXT, "mime_type": "text/plain"},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": TEXT}},
        {"type": "document", "source": {"type": "content", "content": TEXT}, "title": "Keys"},
        {"type": "search_result", "title": "Keys", "content": [{"type": "text", "text": TEXT}]},
        {"text": TEXT},
        {"type": "media", "mime_type": "image/png", "data": "AAAA"},
        {"image": {"format": "png", "source": {"s3Location": "s3://a/b"}}},
        {"cachePoint": {"type": "default"}},
    ],
    ids=lambda block: "-".join(block)[:30],
)
def test_langchain_blocks_of_other_forms_count(block: Any) -> None:
    from langchain.agents.middleware import ModelRequest
    from langchain_core.messages import AIMessage, HumanMessage

    from memagent import ScriptedModel
    from memagent.integrations.langchain import SummaryMiddleware

    writer = ScriptedModel(lambda request: "<summary>s</summary>", window=8192)
    middleware = SummaryMiddleware(buffer := SummaryBuffer(writer, working_context=8000))
    messages: Any = [HumanMessage("Go."), AIMessage("Yes."), HumanMessage([block])]
    sent: list[Any] = []
    middleware.wrap_model_call(
        ModelRequest(model=cast("Any", None), messages=messages), sent.append
    )
    assert sent[0].messages[-1] is messages[-1]
    has_text = TEXT[:30] in str(block)
    assert buffer.tokens > (1700 if has_text else 2000 if "cachePoint" not in block else 200)
    messages += [AIMessage("Next. " * 1000)]
    middleware.wrap_model_call(
        ModelRequest(model=cast("Any", None), messages=messages), sent.append
    )
    assert buffer.summaries == 1
    shown = " ".join(m.content for m in writer.requests[0].messages)
    assert TEXT.strip() in shown if has_text else "[" in shown


@pytest.mark.extra
@pytest.mark.parametrize("strategy", ["ToolStrategy", "AutoStrategy", "ProviderStrategy"])
def test_langchains_tool_for_structured_output_counts(strategy: str) -> None:
    from langchain.agents import structured_output
    from langchain.agents.middleware import ModelRequest
    from langchain_core.messages import HumanMessage

    from memagent import ScriptedModel
    from memagent.integrations.langchain import SummaryMiddleware

    schema = {"title": "Report", "type": "object", "description": "d" * 2000, "properties": {}}
    buffer = SummaryBuffer(ScriptedModel([], window=16_384), working_context=None)
    request = ModelRequest(
        model=cast("Any", None),
        messages=[HumanMessage("Go.")],
        response_format=getattr(structured_output, strategy)(schema),
    )
    SummaryMiddleware(buffer).wrap_model_call(request, lambda request: None)
    assert [t.name for t in buffer.tools] == ([] if strategy == "ProviderStrategy" else ["Report"])
    assert (buffer.tokens > 2000) == (strategy != "ProviderStrategy")


@pytest.mark.extra
async def test_what_pydantic_ai_sends_beside_text_counts() -> None:
    from pydantic_ai import Agent, PromptedOutput
    from pydantic_ai.messages import (
        ModelMessage,
        ModelResponse,
        NativeToolCallPart,
        NativeToolReturnPart,
        TextContent,
        TextPart,
        ThinkingPart,
    )
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.usage import RequestUsage

    from memagent import ScriptedModel
    from memagent.integrations.pydantic_ai import process_history

    extra: list[Any] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        said = TextPart('{"response": 5}' if "JSON" in str(info) else "ok")
        return ModelResponse([*extra, said], usage=RequestUsage(output_tokens=1))

    async def grown(parts: Any, said: Any = "hello", **settings: Any) -> int:
        """Tokens that a request takes after such a reply or message, more than one of text."""
        extra[:] = parts
        writer = ScriptedModel([], window=30_000)
        async with SummaryBuffer(writer, working_context=None) as buffer:
            agent: Any = Agent(FunctionModel(model), capabilities=[process_history(buffer)])
            first = await agent.run(said, **settings)
            await agent.run("Go on.", message_history=first.all_messages(), **settings)
            return buffer.tokens

    plain = await grown([])
    assert await grown([], [TextContent(TEXT)]) - plain > 1600
    assert await grown([ThinkingPart(TEXT)]) - plain > 1600
    calls = [NativeToolCallPart("find", {}, "a"), NativeToolReturnPart("find", TEXT, "a")]
    assert await grown(calls) - plain > 1600
    wanted = PromptedOutput(int, description="d" * 1500)
    assert await grown([], output_type=wanted) - plain > 1500


def test_the_server_refuses_what_it_should() -> None:
    from tests.integrations.in_openai import ORPHANS, orphaned

    player, (system, task, *_) = Player(Book(1), WINDOW), orphaned()
    good = {"messages": [system, task, ORPHANS[2]]}
    assert player.fault(good, 100) == ""
    assert "maximum context" in player.fault(good | {"max_tokens": WINDOW - 99}, 100)
    for messages, said in (
        ([task, system], "system prompt"),
        ([system, ORPHANS[2]], "task"),
        ([system, task, system], "mid-conversation"),
        ([system, task, *ORPHANS[:2]], "calls without"),
        ([system, task, *ORPHANS[:3]], "calls without"),
        ([system, task, ORPHANS[1]], "result without"),
    ):
        assert said in player.fault({"messages": messages}, 100)
