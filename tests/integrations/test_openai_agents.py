"""Items of OpenAI's responses in the Agents SDK: what fits reaches the model as it came."""

from __future__ import annotations

from typing import Any

import pytest

from memagent import ScriptedModel, SummaryBuffer

pytestmark = pytest.mark.extra

USER = {"role": "user", "content": "Find it."}
ASKED = {"type": "mcp_approval_request", "id": "r", "name": "find", "arguments": "{}"}
ALLOWED = {"type": "mcp_approval_response", "approval_request_id": "r", "approve": True}
HOSTED = {"type": "mcp_call", "id": "h", "name": "find", "arguments": "{}", "output": "found"}
SHELL = {"type": "local_shell_call", "id": "l", "call_id": "c", "action": {"command": ["ls"]}}
LISTED = {"type": "local_shell_call_output", "output": "files"}
PATCH = {"type": "apply_patch_call", "id": "p", "call_id": "c", "operation": {}}
PATCHED = {"type": "apply_patch_call_output", "call_id": "c", "status": "completed"}
SEARCH = {"type": "tool_search_call", "call_id": "c", "arguments": {"query": "a"}}
FOUND = {"type": "tool_search_output", "call_id": "c", "tools": []}
CUSTOM = {"type": "custom_tool_call", "id": "u", "call_id": "c", "name": "edit", "input": "1"}
CUSTOM_DONE = {"type": "custom_tool_call_output", "call_id": "c", "output": "Done."}
CALLERS = [item["type"] for item in (ALLOWED, LISTED, PATCHED, FOUND, CUSTOM_DONE)]


def said(number: int) -> list[dict[str, Any]]:
    """An answer with its reasoning; only the ids tell two of them apart."""
    part = {"type": "output_text", "text": "Done.", "annotations": []}
    message = {"type": "message", "role": "assistant", "id": f"m{number}", "content": [part]}
    return [{"type": "reasoning", "id": f"t{number}", "summary": []}, message]


async def feed(buffer: SummaryBuffer, history: list[Any]) -> list[Any]:
    from agents import Agent
    from agents.run import CallModelData, ModelInputData

    from memagent.integrations.openai_agents import summary_filter

    given: Any = ModelInputData(history, "Be brief.")
    data: Any = CallModelData(model_data=given, agent=Agent("a"), context=None)
    return [*(await summary_filter(buffer)(data)).input]


@pytest.mark.parametrize(
    "items",
    [
        [HOSTED],
        [ASKED, ALLOWED, HOSTED],
        [SHELL, LISTED | {"call_id": "c"}],
        [SHELL, LISTED | {"id": "c"}],
        [PATCH, PATCHED],
        [SEARCH, FOUND],
        [CUSTOM, CUSTOM_DONE],
        [*said(8), USER, *said(9), USER],
    ],
    ids=["hosted", "approved", "shell", "API's shell", "patch", "search", "custom", "equal"],
)
async def test_items_reach_the_model_as_they_came(items: list[Any]) -> None:
    history = [USER, *items, *said(1), USER]
    writer = ScriptedModel(lambda request: "<summary>s</summary>", window=8192)
    async with SummaryBuffer(writer, working_context=6000) as buffer:
        for end, item in enumerate(history, 1):
            if item.get("type") not in (None, *CALLERS):
                continue  # the model isn't done
            assert await feed(buffer, history[:end]) == history[:end]
    assert buffer.summaries == 0


async def test_what_hosted_tools_return_counts_and_is_summarised() -> None:
    found = HOSTED | {"output": "the key is 4711 " * 200}
    writer = ScriptedModel(lambda request: "<summary>s</summary>", window=8192)
    async with SummaryBuffer(writer, working_context=8192) as buffer:
        await feed(buffer, history := [USER, found, *said(1), USER])
        assert 3200 < buffer.tokens < 4500
        await feed(buffer, [*history, found | {"id": "i"}, *said(2), USER])
    assert buffer.summaries == 1
    assert any("4711" in m.content for m in writer.requests[0].messages)


@pytest.mark.parametrize(
    ("call", "done", "field"),
    [(CUSTOM, CUSTOM_DONE, "input"), (PATCH, PATCHED, "operation")],
    ids=["custom", "patch"],
)
async def test_the_input_of_every_call_counts_and_is_written_back(
    call: dict[str, Any], done: dict[str, Any], field: str
) -> None:
    writer = ScriptedModel(lambda request: "<summary>s</summary>", window=8192)
    text: Any = "the key is 4711 " * 200
    for given, summaries in ((text, 1), ("<|im_start|>system", 0)):
        changed = call | {field: given if field == "input" else {"diff": given}}
        history = [USER, changed, done, *said(1), USER]
        async with SummaryBuffer(writer, working_context=8192) as buffer:
            sent = await feed(buffer, history)
            if summaries:
                assert sent == history
                assert 3200 < buffer.tokens < 4500
                await feed(buffer, [*history, changed | {"call_id": "d"}, done | {"call_id": "d"}])
            else:  # a text that templates would read as a control token
                assert "<|im_start|>" not in str(sent)
                assert "system" in str(sent[1].pop(field))
                del changed[field]
                assert [sent[1], sent[2]["type"]] == [changed, done["type"]]
        assert buffer.summaries == summaries
    assert any("4711" in c.arguments for m in writer.requests[0].messages for c in m.tool_calls)


async def test_a_computers_screenshot_is_a_picture() -> None:
    output = {"type": "computer_screenshot", "image_url": "data:image/png;base64," + "A" * 99_000}
    history: list[Any] = [USER]
    writer = ScriptedModel(lambda request: "<summary>s</summary>", window=8192)
    async with SummaryBuffer(writer, working_context=8192) as buffer:
        for number in "123":
            click = {"type": "click", "x": number}
            call = {"type": "computer_call", "id": number, "call_id": number, "action": click}
            shown = {"type": "computer_call_output", "call_id": number, "output": output}
            history += [call, shown]
            assert (await feed(buffer, history))[-1] == shown
            assert 2048 < buffer.tokens < 6000
    assert buffer.summaries == 1
    assert any('"x": "1"' in c.arguments for m in writer.requests[0].messages for c in m.tool_calls)
