"""Failed calls in other frameworks' loops: they hide no earlier result, and stay failures when they are shortened."""

from __future__ import annotations

from typing import Any, cast

import pytest

from memagent import ChatRequest, ScriptedModel, SummaryBuffer

pytestmark = pytest.mark.extra

GOOD, LONG = "The key is 4711. " * 170, "Line 1 of the trace.\n" * 285


def a_buffer() -> SummaryBuffer:
    def summarise(request: ChatRequest) -> str:
        return "<summary>s</summary>"

    writer = ScriptedModel(summarise, window=8192)
    return SummaryBuffer(writer, working_context=8192, idempotent={"read"})


def test_langchain() -> None:
    from langchain.agents.middleware import ModelRequest
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from memagent.integrations.langchain import SummaryMiddleware

    def step(page: int, call_id: str, text: str, **fields: Any) -> list[Any]:
        call: Any = {"name": "read", "args": {"page": page}, "id": call_id, "type": "tool_call"}
        return [AIMessage("", tool_calls=[call]), ToolMessage(text, tool_call_id=call_id, **fields)]

    def send(messages: list[Any]) -> list[Any]:
        sent: list[Any] = []
        request = ModelRequest(model=cast("Any", None), messages=messages)
        middleware.wrap_model_call(request, sent.append)
        return sent[0].messages

    middleware = SummaryMiddleware(buffer := a_buffer())
    history: list[Any] = [HumanMessage("Go."), *step(1, "first", GOOD)]
    history += step(1, "again", "The disk is gone. " * 20, status="error")
    texts: set[str] = set()
    for page in range(2, 12):
        history += step(page, f"c{page}", f"Page {page}.".ljust(250, "x"))
        shown = {m.tool_call_id: m.text for m in send(history) if isinstance(m, ToolMessage)}
        texts.add(shown["first"])
    assert buffer.summaries == 0
    assert len(texts) == 2  # whole, then clipped
    assert all("4711" in text for text in texts)

    middleware = SummaryMiddleware(a_buffer())
    fields: Any = {"status": "error", "name": "read"}
    original = step(1, "first", LONG, **fields)
    result = send([HumanMessage("Go."), *original])[-1]
    assert 100 < len(result.text) < len(LONG)
    assert {name: getattr(result, name) for name in fields} == fields
    assert original[-1].text == LONG

    # Servers may count calls anew in each reply.
    middleware = SummaryMiddleware(a_buffer())
    history = [HumanMessage("Go."), *step(1, "call_0", LONG)]
    send(history)
    result = send([*history, *step(2, "call_0", "No page.", status="error")])[2]
    assert 100 < len(result.text) < len(LONG)
    assert result.status == "success"


@pytest.mark.parametrize("marked", [True, False])
async def test_pydantic_ai(marked: bool) -> None:
    from pydantic_ai import Agent, ModelRetry
    from pydantic_ai.messages import (
        ModelMessage,
        ModelResponse,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
    )
    from pydantic_ai.models.function import AgentInfo, FunctionModel
    from pydantic_ai.usage import RequestUsage

    from memagent.integrations.pydantic_ai import process_history

    pages = [1, 1, *range(2, 11)] if marked else [0]
    results: list[ToolReturnPart] = []

    def act(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        results[:] = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
        step = len([m for m in messages if isinstance(m, ModelResponse)])
        part = (
            TextPart("done") if step == len(pages) else ToolCallPart("read", {"page": pages[step]})
        )
        return ModelResponse([part], usage=RequestUsage(input_tokens=1))

    buffer, seen = a_buffer(), set[int]()
    agent = Agent(FunctionModel(act), capabilities=[process_history(buffer)], retries=3)

    @agent.tool_plain
    def read(page: int) -> str:
        if page in seen or not page:
            raise ModelRetry("The disk is gone. " * 20 if page else LONG)
        seen.add(page)
        return GOOD if page == 1 else f"Page {page}.".ljust(250, "x")

    async with buffer:
        assert (await agent.run("Go.")).output == "done"
        assert buffer.summaries == 0
    if marked:
        first, second, *_ = results
        assert "4711" in str(first.content)
        assert (first.outcome, second.outcome) == ("success", "retried")
    else:
        (result,) = results
        assert result.outcome == "retried"
        assert 100 < len(str(result.content)) < len(LONG)
        assert str(result.content).startswith("Line 1")  # the sender puts it into an object again
