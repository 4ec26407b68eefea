"""Tool calls by the servers' own means: forced ones, since the tiny model's weights are random."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engines import venvs
from tests.engines.servers import EngineServer

from memagent.messages import ChatRequest, Message, Sampling, ToolCall, ToolSpec
from memagent.models.openai import OpenAIModel
from memagent.models.server import Server
from memagent.models.server_counter import ServerCounter
from memagent.threads import in_thread

CITIES, YEARS = ("Moskva", "Smolensk", "Bałta"), (1805, 1812)
TRAVEL = ToolSpec(
    name="travel",
    description="Goes to a <city> & stays there.",
    parameters={
        "type": "object",
        "properties": {
            "city": {"type": "string", "enum": list(CITIES)},
            "year": {"type": "integer", "enum": list(YEARS)},
        },
        "required": ["city", "year"],
        "additionalProperties": False,
    },
)
LOOK = ToolSpec(name="look")
ASK = Message(role="user", content="Where was the prince in 1812?")
NAMED = {"type": "function", "function": {"name": "travel"}}


def opened(engine: EngineServer, **options: Any) -> OpenAIModel:
    return OpenAIModel(engine.model, base_url=engine.url, api_key=engine.api_key, **options)


def request(*messages: Message, **fields: Any) -> ChatRequest:
    fields = {"max_tokens": 600, "seed": 1, "tools": (TRAVEL, LOOK)} | fields
    return ChatRequest(messages=messages, sampling=Sampling(temperature=1.0), **fields)


def fits(call: ToolCall) -> bool:
    arguments = json.loads(call.arguments)
    return arguments["city"] in CITIES and arguments["year"] in YEARS and len(arguments) == 2


def turn(*arguments: str, results: int | None = None) -> tuple[Message, ...]:
    """An assistant's calls with those arguments, and what came of them."""
    calls = tuple(
        ToolCall(id=f"call{n:05d}", name="travel", arguments=a) for n, a in enumerate(arguments)
    )
    told = [Message(role="tool", content=f"Hot, {c.id}.", tool_call_id=c.id) for c in calls]
    return (Message(role="assistant", content="", tool_calls=calls), *told)


@pytest.mark.parametrize("choice", [NAMED, "required"], ids=["named", "required"])
async def test_calls_come_back_and_their_results_are_taken(
    engine: EngineServer, choice: object
) -> None:
    extra = {"tool_choice": choice, "parallel_tool_calls": False}
    model = opened(engine, extra_body=extra)
    reply = await model.complete(request(ASK, tools=(TRAVEL,)))
    said = Message(role="assistant", content=reply.text, tool_calls=reply.tool_calls)
    told = tuple(
        Message(role="tool", content="Hot in <Moskva>.", tool_call_id=c.id) for c in said.tool_calls
    )
    second = await model.complete(request(ASK, said, *told, tools=(TRAVEL,)))
    for completion in (reply, second):
        assert completion.text.strip() == ""
        (call,) = completion.tool_calls
        assert call.name == "travel"
        assert call.id
        assert fits(call)
    await model.aclose()


CONVERSATIONS: dict[str, tuple[Message, ...]] = {
    "asked": (ASK,),
    "called": (ASK, *turn('{"city":"Moskva","year": 1812}')),
    "parallel": (ASK, *turn('{"city": "Ba\\u0142ta"}', '{"year": [1, {"a": null}]}'), ASK),
    "malformed": (ASK, *turn('{"city": "Mosk', "[1]", "", '{"year": NaN}')),
    "words": (
        ASK,
        Message(role="assistant", content="I go.", tool_calls=turn("{}")[0].tool_calls),
        *turn("{}")[1:],
    ),
}


@pytest.mark.parametrize("tokenizer", [False, True], ids=["server", "local"])
@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_prompts_with_tools_are_counted_exactly(
    engine: EngineServer, name: str, tokenizer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the server takes each of them, malformed arguments too."""
    folder: Path | None = venvs.tiny_model() if tokenizer else None
    model = opened(engine, tokenizer=folder)
    counter = await model.counter()
    assert isinstance(counter, ServerCounter)
    messages = CONVERSATIONS[name]
    for tools in ((TRAVEL, LOOK), (LOOK,), ()):
        ask = request(*messages, tools=tools, max_tokens=1)
        counted = await in_thread(counter.count_messages, messages, tools=tools)
        reply = await model.complete(ask)
        assert counted == reply.usage.prompt_tokens
    # SGLang adds a key to tools that the template writes out, so that only it can count them.
    local = tokenizer and engine.engine == "vllm"
    asked: list[str] = []
    ask = Server.ask

    def note(server: Server, path: str, body: Any = None) -> Any:
        asked.append(path)
        return ask(server, path, body)

    monkeypatch.setattr(Server, "ask", note)
    await in_thread(counter.count_messages, messages[:1], tools=(LOOK, TRAVEL))
    assert (not asked) == local
    await model.aclose()
