"""Messages and tools in the body of a request."""

import json
from typing import Any

import pytest
from tests.models.chat_server import CHATML, CHATML_TOOLS, Script, chat, send

from memagent.errors import ContextOverflow, TokenizerError
from memagent.messages import ChatRequest, Message, ToolCall, ToolSpec
from memagent.models.dialects import write_message
from memagent.models.openai import OpenAIModel

ASK = Message(role="user", content="hi")
LOOK = ToolSpec(name="look", description="Looks.")
FORM = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks.",
        "parameters": {"type": "object", "properties": {}},
    },
}


def request(**fields: Any) -> ChatRequest:
    return ChatRequest(**({"messages": (ASK,), "max_tokens": 20} | fields))


def called(arguments: str, content: str = "") -> Message:
    call = ToolCall(id="a", name="look", arguments=arguments)
    return Message(role="assistant", content=content, tool_calls=(call,))


RESULT = Message(role="tool", content="A house.", tool_call_id="a")


async def test_tools_and_calls_are_sent_in_openais_form(server: Script) -> None:
    model = OpenAIModel("tiny", base_url=server.url)
    ask = request(messages=(ASK, called('{"far":true}'), RESULT), tools=(LOOK,))
    await model.complete(ask)
    (body,) = server.bodies
    function = {"name": "look", "arguments": '{"far":true}'}
    call = {"id": "a", "type": "function", "function": function}
    assert body["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "A house.", "tool_call_id": "a"},
    ]
    assert body["tools"] == [FORM]
    assert "tool_choice" not in body
    await model.aclose()


async def test_tools_may_be_shown_and_not_be_called(server: Script) -> None:
    model = OpenAIModel("tiny", base_url=server.url)
    await model.complete(request(tools=(LOOK,), tool_choice="none"))
    await model.complete(request(tool_choice="none"))
    with_tools, without = server.bodies
    assert (with_tools["tools"], with_tools["tool_choice"]) == ([FORM], "none")
    assert "tool_choice" not in without
    await model.aclose()


async def test_extra_body_has_the_last_word_on_tools(server: Script) -> None:
    extra: dict[str, Any] = {"tools": [], "tool_choice": "none"}
    model = OpenAIModel("tiny", base_url=server.url, extra_body=extra)
    await model.complete(request(tools=(LOOK,)))
    assert server.bodies[0]["tools"] == []
    assert server.bodies[0]["tool_choice"] == "none"
    await model.aclose()


@pytest.mark.parametrize("arguments", ['{"far": ', "far", "[1]", "", "{}", '{"x": NaN}'])
def test_arguments_that_no_server_takes_are_sent_as_none(arguments: str) -> None:
    (call,) = write_message(called(arguments))["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {}


@pytest.mark.parametrize(
    ("arguments", "sent"),
    [('{"x": "a\nb"}', r'{"x": "a\nb"}'), (r'{"x": "\ud800"}', '{"x": "\ufffd"}')],
)
def test_arguments_that_a_tool_takes_are_sent_as_strict_json(arguments: str, sent: str) -> None:
    (call,) = write_message(called(arguments))["tool_calls"]
    assert call["function"]["arguments"] == sent


def test_other_messages_are_sent_as_they_are() -> None:
    for message in (ASK, RESULT, called('{ "far" : 1 }', "I look.")):
        assert write_message(message) == message.to_openai()


async def test_a_prompt_is_counted_with_its_tools_before_it_is_sent(server: Script) -> None:
    server.be_vllm(template=CHATML_TOOLS, window=300)
    server.default = send(200, chat() | {"usage": None})
    model = OpenAIModel("tiny", base_url=server.url)
    await model.complete(request(max_tokens=200))
    await model.complete(request(max_tokens=100, tools=(LOOK,)))
    many = tuple(ToolSpec(name=f"look{n}", description="Looks far.") for n in range(9))
    with pytest.raises(ContextOverflow) as refused:
        await model.complete(request(max_tokens=100, tools=many))
    assert refused.value.attempts == 0
    long = called(json.dumps({"where": "behind the house of the old prince " * 40}))
    with pytest.raises(ContextOverflow):
        await model.complete(request(max_tokens=10, messages=(ASK, long, RESULT)))
    assert len(server.bodies) == 2
    await model.aclose()


async def test_a_model_that_would_not_see_its_tools_is_not_asked(server: Script) -> None:
    server.be_vllm(template=CHATML)
    model = OpenAIModel("tiny", base_url=server.url)
    with pytest.raises(TokenizerError, match="text protocol"):
        await model.complete(request(tools=(LOOK,)))
    assert server.bodies == []
    await model.aclose()
