import json
import re
from typing import Any

import pytest
from tests.models.chat_server import Script, chat, send

from memagent import MemoryAgent, open_model
from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    NoReply,
    RequestRefused,
    ServerBusy,
    ServerFailed,
)
from memagent.messages import ChatRequest, FinishReason, Message, ToolSpec
from memagent.models.openai_errors import Endpoint
from memagent.models.openai_reply import ServedModel, read_completion, read_models, served_window
from memagent.trajectory import StopReason

ENDPOINT = Endpoint(name="m", base_url="http://h/v1", timeout=1)
PLAIN = ChatRequest(messages=(Message(role="user", content="hi"),), max_tokens=9)
WITH_TOOLS = PLAIN.model_copy(update={"tools": (ToolSpec(name="f"),)})
CALL = {"id": "1", "function": {"name": "look", "arguments": '{"where": "there"}'}}


def read(body: Any, asked: ChatRequest = WITH_TOOLS):
    return read_completion(json.dumps(body).encode(), ENDPOINT, asked)


@pytest.mark.parametrize(
    ("reported", "reason"),
    [
        ("stop", FinishReason.STOP),
        ("eos_token", FinishReason.STOP),
        (None, FinishReason.STOP),
        ("length", FinishReason.LENGTH),
        ("MAX_TOKENS", FinishReason.LENGTH),
        ("model_length", FinishReason.LENGTH),
        ("end_turn", FinishReason.STOP),
        ("something new", FinishReason.STOP),
        ("content_filter", FinishReason.OTHER),
        ("SAFETY", FinishReason.OTHER),
    ],
)
def test_finish_reasons(reported: str | None, reason: FinishReason) -> None:
    assert read(chat(finish=reported)).finish_reason is reason


@pytest.mark.parametrize(
    "reported", ["abort", "ERROR", "insufficient_system_resource", "time_limit", "cancelled"]
)
def test_a_broken_off_generation_is_no_reply(reported: str) -> None:
    with pytest.raises(ServerFailed, match=reported):
        read(chat("half a mem", finish=reported))


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("a", "a"),
        (" a\n", " a\n"),
        (None, ""),
        ("", ""),
        ([{"type": "text", "text": "a"}, {"type": "thinking"}, {"text": "b"}], "ab"),
        ([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "a"}], "a"),
    ],
)
def test_content(content: Any, text: str) -> None:
    assert read(chat(content)).text == text


def test_lone_surrogates_are_replaced() -> None:
    """JavaScript's JSON has them as escapes, where a limit cut an emoji in two."""
    half = "\ud83d"
    call = {"id": f"a{half}", "function": {"name": "f", "arguments": f'{{"x": "{half}"}}'}}
    reply = read(chat(f"half {half}", tool_calls=[call], reasoning=f"é{half}", signature=half))
    assert reply.text == "half \ufffd"
    assert reply.reasoning == "é\ufffd"
    assert reply.extra["signature"] == "\ufffd"
    assert reply.tool_calls[0].values() == {"x": "\ufffd"}
    assert read(chat("\U0001f642")).text == "\U0001f642"
    assert read_models(json.dumps([{"id": half}]).encode(), ENDPOINT)[0].id == "\ufffd"
    with pytest.raises(BadResponse, match="slow \ufffd"):
        read({"error": f"slow {half}"})


def test_usage_may_be_missing_or_partial() -> None:
    body = chat()
    body["usage"] = None
    assert read(body).usage.model_dump(exclude_defaults=True) == {"calls": 1}
    body["usage"] = {"prompt_tokens": 2}
    body["timings"] = {"cache_n": 1}
    usage = {"calls": 1, "prompt_tokens": 2, "cached_tokens": 1}
    assert read(body).usage.model_dump(exclude_defaults=True) == usage


@pytest.mark.parametrize("said", [-1, 2**31, 2**62, 10**19, 10**30, True, 1.5, "many", [1]])
def test_an_impossible_usage_counts_as_missing(said: Any) -> None:
    names = ("prompt_tokens", "completion_tokens")
    details = {"prompt_tokens_details": {"cached_tokens": said}}
    body = chat() | {"usage": dict.fromkeys(names, said) | details}
    assert read(body).usage.model_dump(exclude_defaults=True) == {"calls": 1}


def test_unknown_shapes_of_reasoning_are_left_out() -> None:
    assert read(chat("a", reasoning={"steps": []}, reasoning_content="r")).reasoning == "r"


def test_bad_replies_are_quoted() -> None:
    with pytest.raises(BadResponse, match="'<html> hi'"):
        read_completion(b"<html>\n hi", ENDPOINT, WITH_TOOLS)
    with pytest.raises(BadResponse, match="'overloaded'"):
        read({"error": {"message": "overloaded"}})


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (429, ServerBusy),
        ("503", ServerBusy),
        (401, AuthenticationFailed),
        (400, RequestRefused),
        (502, ServerFailed),
        (200, BadResponse),
        ("rate_limit", BadResponse),
        (None, BadResponse),
    ],
)
def test_an_error_may_come_with_status_200(code: Any, kind: type[Exception]) -> None:
    """As OpenRouter and others send it if the engine fails late."""
    for body in (
        {"error": {"message": "later", "code": code}},
        {"error": "later", "code": code},
        {"error": {"message": "later", "code": code}, "choices": []},
    ):
        with pytest.raises(kind, match="later"):
            read(body)


def test_model_list() -> None:
    listing = {"data": [{"id": "a", "max_model_len": 8}, {"id": "b", "meta": None}]}
    models = read_models(json.dumps(listing).encode(), ENDPOINT)
    assert [(model.id, model.window) for model in models] == [("a", 8), ("b", None)]
    with pytest.raises(BadResponse, match="GET /models"):
        read_models(b"[]", ENDPOINT)


def test_a_bare_list_of_models() -> None:
    listed = read_models(b'[{"id": "a", "context_length": 8}, {"id": "b"}]', ENDPOINT)
    assert [(model.id, model.window) for model in listed] == [("a", 8), ("b", None)]


@pytest.mark.parametrize("said", [-1, 0, True, "unlimited", 1.5, [8192]])
def test_an_impossible_window_counts_as_none(said: Any) -> None:
    entry = {"id": "a", "max_model_len": said, "owned_by": 3, "meta": {"n_ctx": said}, "parent": 1}
    [model] = read_models(json.dumps({"data": [entry]}).encode(), ENDPOINT)
    assert model.window is None
    listed = {"data": [entry | {"context_length": 8}]}
    assert read_models(json.dumps(listed).encode(), ENDPOINT)[0].window == 8


def test_window_of_a_served_model() -> None:
    base = ServedModel.model_validate({"id": "base", "max_model_len": 8})
    listed = [
        base,
        *map(ServedModel.model_validate, ({"id": "adapter", "parent": "base"}, {"id": "mute"})),
    ]
    windows = [served_window(name, listed) for name in ("base", "adapter", "mute", "absent")]
    assert windows == [8, 8, None, None]
    assert served_window("any name", [base]) == 8
    assert served_window("any name", []) is None


def test_tool_calls_without_content() -> None:
    sent = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
        {"id": "a", "function": {"name": "g", "arguments": {"é": None}}, "index": 1},
        {"function": {"name": "h", "arguments": None}},
    ]
    reply = read(chat(None, finish="tool_calls", tool_calls=sent))
    assert (reply.text, reply.finish_reason) == ("", FinishReason.STOP)
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("a", "f", '{"x": 1}'),
        ("call00001", "g", '{"é": null}'),
        ("call00002", "h", "{}"),
    ]


@pytest.mark.parametrize("none", [None, []], ids=["null", "empty"])
def test_a_reply_without_calls(none: Any) -> None:
    assert read(chat("a", tool_calls=none)).tool_calls == ()


def test_words_beside_tool_calls_stay() -> None:
    reply = read(chat("I look.", tool_calls=[{"id": "1", "function": {"name": "f"}}]))
    assert reply.text == "I look."
    assert len(reply.tool_calls) == 1


@pytest.mark.parametrize(
    "calls",
    [
        "f()",
        [None],
        [{"id": "1"}],
        [{"id": "1", "function": "f"}],
        [{"id": "1", "function": {"arguments": "{}"}}],
        [{"id": "1", "function": {"name": "", "arguments": "{}"}}],
        [{"id": "1", "function": {"name": "f", "arguments": [1]}}],
        [{"id": 1, "function": {"name": "f"}}],
        [{"id": "1", "type": "custom", "custom": {"name": "f", "input": "x"}}],
    ],
    ids=["text", "null", "bare", "no-object", "no-name", "empty-name", "list", "id", "custom"],
)
def test_tool_calls_of_another_form_are_no_reply(calls: Any) -> None:
    with pytest.raises(BadResponse, match="not a chat completion"):
        read(chat(None, tool_calls=calls))


def test_a_refusal_is_an_error_that_says_it() -> None:
    with pytest.raises(NoReply, match="I can't help with Natasha") as caught:
        read(chat(None, refusal="I can't help with Natasha."), PLAIN)
    assert not caught.value.retryable
    assert read(chat("a", refusal="no"), PLAIN).text == "a"
    assert read(chat("a", refusal=None), PLAIN).text == "a"


def test_a_call_of_a_tool_that_was_not_given_is_an_error_that_says_it() -> None:
    with pytest.raises(NoReply, match=r"look.*where.*there"):
        read(chat(None, tool_calls=[CALL]), PLAIN)
    assert read(chat("The memory.", tool_calls=[CALL]), PLAIN).text == "The memory."


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"refusal": "I can't help with Natasha."}, "the model refuses: .I can't help with Natasha"),
        ({"tool_calls": [CALL]}, r"none was offered: 'look\("),
    ],
    ids=["refusal", "calls"],
)  # fmt: skip
async def test_a_reply_without_text_is_paid_for_once(server: Script, said: Any, words: str) -> None:
    server.default = send(200, chat(None, **said))
    model = open_model("openai:tiny", base_url=server.url)
    async with MemoryAgent(model, window=3000, store=None) as agent:
        result = await agent.aask("Natasha marries Pierre.", "Whom does Natasha marry?")
    assert (result.answer, result.stop_reason) == (None, StopReason.UNUSABLE_REPLY)
    assert re.search(words, result.detail)
    assert len(server.bodies) == 1
