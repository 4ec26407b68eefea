"""What a reply holds beside its text goes back to the server as it came; what no request can hold never enters."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.models.chat_server import Behaviour, Handler, chat, running, send
from tests.session.adding import PROMPTS, TASK, adding_tools

from memagent import ScriptedModel, ToolAgent, open_model
from memagent.messages import ChatRequest, ToolCall
from memagent.models.scripted import Reply
from memagent.trajectory import StopReason

THOUGHT = "First the next number."
DETAILS = [{"type": "reasoning.encrypted", "data": "c2lnbmVk"}]
SIGNATURE = {"google": {"thought_signature": "c2lnbmVk"}}
PARTS = [{"type": "thinking", "thinking": [{"type": "text", "text": THOUGHT}]}]
FUNCTION = {"name": "noted", "arguments": "{}"}
CALL = {"id": "a", "type": "function", "function": FUNCTION, "extra_content": SIGNATURE}
SAID: dict[str, Any] = {"reasoning_content": THOUGHT, "reasoning_details": DETAILS}


def strict(content: Any) -> Behaviour:
    """Calls a tool, and refuses to go on unless its message comes back as it was."""
    message = {"role": "assistant", "content": content, "tool_calls": [CALL], **SAID}

    def behave(handler: Handler) -> None:
        messages = handler.body["messages"]
        if messages[-1]["role"] == "user":
            first = chat(content, tool_calls=[CALL], **SAID)
            send(200, first)(handler)
        elif messages[-2] != message:
            send(400, {"error": {"message": f"thoughts are missing in {messages[-2]}"}})(handler)
        else:
            send(200, chat("1"))(handler)

    return behave


@pytest.mark.parametrize("content", [None, PARTS], ids=["fields", "parts"])
def test_a_server_gets_back_what_it_sent(content: Any, tmp_path: Path) -> None:
    with running() as server:
        server.default = strict(content)
        model = open_model("vllm:tiny", base_url=server.url, window=16_384)
        store = tmp_path / "runs.sqlite"
        with ToolAgent(model, adding_tools(), prompts=PROMPTS, store=store) as agent:
            run = agent.run(TASK, run_id="r")
            assert (run.answer, run.steps) == ("1", 1)
            told = run.trajectory.conversations[0].messages[2]
        assert told.extra["reasoning_details"] == DETAILS
        assert told.tool_calls[0].extra == {"extra_content": SIGNATURE}


@pytest.mark.parametrize("content", [None, PARTS], ids=["fields", "parts"])
async def test_a_resumed_run_sends_it_back_too(content: Any, tmp_path: Path) -> None:
    with running() as server:
        server.default = strict(content)
        model = open_model("vllm:tiny", base_url=server.url, window=16_384)
        settings: dict[str, Any] = {"prompts": PROMPTS, "store": tmp_path / "runs.sqlite"}
        async with ToolAgent(model, adding_tools(), max_steps=1, **settings) as agent:
            stopped = await agent.arun(TASK, run_id="r")
            assert stopped.stop_reason is StopReason.OUT_OF_STEPS
        model = open_model("vllm:tiny", base_url=server.url, window=16_384)
        async with ToolAgent(model, adding_tools(), **settings) as agent:
            assert (await agent.aresume("r")).answer == "1"


def noting(asked: ChatRequest) -> Reply:
    """Calls with half a surrogate pair, written as JSON can; refuses what cannot be sent."""
    for message in asked.messages:
        message.content.encode()
    if asked.kind == "summary":
        return "<summary>Noted.</summary>"
    return ToolCall(id="a", name="note", arguments=r'{"item": "\ud800"}')


async def test_half_a_surrogate_pair_in_arguments_ends_no_session(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"prompts": PROMPTS, "store": tmp_path / "runs.sqlite"}
    settings |= {"max_summaries": 100, "working_context": 7000}
    model = ScriptedModel(noting, window=7000)
    async with ToolAgent(model, adding_tools(), max_steps=20, **settings) as agent:
        stopped = await agent.arun(TASK, run_id="r")
    async with ToolAgent(model, adding_tools(), max_steps=40, **settings) as agent:
        resumed = await agent.aresume("r")
    assert stopped.stop_reason is resumed.stop_reason is StopReason.OUT_OF_STEPS
    assert resumed.steps == 40
    assert resumed.summaries > 0
    json.dumps([m.model_dump() for m in model.requests[-1].messages], ensure_ascii=False).encode()
