"""Models in the endpoint's process: no server gets bytes, and all else is the same."""

import asyncio
import json
import threading
from typing import Any

import httpx
import pytest
from openai import APIError, BadRequestError, InternalServerError, OpenAI
from tests.models.chat_server import running, send
from tests.serve.conftest import listening_with
from tests.serve.test_reading import DOCUMENT, FACT, QUESTION

from memagent import ChatRequest, RunStore, ScriptedModel, open_model
from memagent.errors import ConnectionFailed
from memagent.messages import Completion, FinishReason
from memagent_engines.extractive import ExtractiveModel
from memagent_serve import wire

PARTS: Any = [{"type": "text", "text": text} for text in (DOCUMENT, QUESTION)]
HELLO: Any = [{"role": "user", "content": "Hi"}]
LONG_TOOLS = [{"type": "function", "function": {"name": "f", "description": "do " * 9000}}]


def client_of(url: str) -> OpenAI:
    return OpenAI(base_url=url, api_key="none", max_retries=0)


def test_a_reader_without_a_server(store: RunStore) -> None:
    model, reading = ExtractiveModel(window=4096), {"gate": "update"}
    with listening_with(model, store, reading=reading) as url, client_of(url) as client:
        assert [entry.id for entry in client.models.list()] == ["extractive"]
        reply: Any = client.chat.completions.create(
            model="extractive", messages=[{"role": "user", "content": PARTS}]
        )
        assert reply.choices[0].message.content == FACT
        assert reply.memagent["read"][0]["chunks"] > 2


def test_short_requests_are_answered_in_both_forms(store: RunStore) -> None:
    model = ScriptedModel(lambda request: f"{request.messages[-1].content}, you.", window=2048)
    with listening_with(model, store) as url, client_of(url) as client:
        reply = client.chat.completions.create(
            model=model.name, messages=HELLO, temperature=0, stop=["."], seed=3, max_tokens=9
        )
        assert reply.choices[0].message.content == "Hi, you"
        assert reply.usage
        assert reply.usage.total_tokens > 0
        assert client.responses.create(model=model.name, input="Hi").output_text == "Hi, you."
        pieces = client.chat.completions.create(model=model.name, messages=HELLO, stream=True)
        assert "".join(p.choices[0].delta.content or "" for p in pieces) == "Hi, you."
    (request, *_) = model.requests
    assert (request.max_tokens, request.seed, request.stop) == (9, 3, (".",))
    assert request.sampling.temperature == 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {}),
        ("chat/completions", {"messages": []}),
        ("chat/completions", {"messages": "hi"}),
        ("chat/completions", {"messages": [], "tools": LONG_TOOLS}),
        ("chat/completions", {"messages": HELLO, "max_tokens": -5}),
        ("chat/completions", {"messages": HELLO, "max_tokens": True}),
        ("chat/completions", {"messages": HELLO, "stop": 5}),
        ("chat/completions", {"messages": HELLO, "stop": {"a": 1}}),
        ("chat/completions", {"messages": HELLO, "stream": "x"}),
        ("chat/completions", {"messages": HELLO, "seed": 1.5}),
        ("responses", {}),
        ("responses", {"input": 5}),
        ("responses", {"input": [{"type": "item_reference", "id": "msg_1"}]}),
        ("responses", {"input": "Hi", "instructions": ["x"]}),
        ("responses", {"input": "Hi", "max_tokens": 5}),
        ("chat/completions", {"messages": HELLO, "instructions": "Be brief."}),
    ],
)
def test_a_request_that_is_wrong_is_refused_as_such(
    store: RunStore, path: str, body: dict[str, Any]
) -> None:
    model = ScriptedModel(["Hi."])
    with listening_with(model, store) as url:
        response = httpx.post(f"{url}/{path}", json={"model": model.name, **body})
    assert response.status_code == 400, response.text
    required = "input" if path == "responses" else "messages"
    assert response.json()["error"]["param"] == [required, *body][-1]
    assert model.requests == []


def test_usage_that_a_model_does_not_report_is_counted(store: RunStore) -> None:
    with listening_with(ScriptedModel([Completion(text="Hi")]), store) as url:
        reply = httpx.post(f"{url}/chat/completions", json={"messages": HELLO})
    usage = reply.json()["usage"]
    assert usage["completion_tokens"] == 2
    assert usage["prompt_tokens"] > 2


def test_what_the_model_refuses_is_the_callers_fault(store: RunStore) -> None:
    told = pytest.raises(BadRequestError, match="extractive only reads documents")
    with listening_with(ExtractiveModel(), store) as url, client_of(url) as client, told:
        client.chat.completions.create(model="extractive", messages=HELLO)


@pytest.mark.parametrize(
    ("stop", "answer", "finish"),
    [
        (" you", "Hi,", "stop"),
        (["you", ","], "Hi", "stop"),
        (["Hi"], "", "stop"),
        (["x", ""], "Hi, you", "length"),
    ],
)
def test_an_answer_ends_before_the_first_stop(
    store: RunStore, stop: Any, answer: str, finish: str
) -> None:
    said = Completion(text="Hi, you", finish_reason=FinishReason.LENGTH)
    with (
        listening_with(ScriptedModel([said]), store) as url,
        client_of(url) as client,
    ):
        reply = client.chat.completions.create(model="scripted", messages=HELLO, stop=stop)
    (choice,) = reply.choices
    assert (choice.message.content, choice.finish_reason) == (answer, finish)


def test_ollama_gets_requests_with_their_window(store: RunStore) -> None:
    """Its `/v1` would cut what its own default doesn't hold."""
    with running() as server:
        told = {
            "message": {"content": "Hi."},
            "done": True,
            "prompt_eval_count": 9,
            "eval_count": 2,
        }
        server.others["/api/show"] = send(200, {"model_info": {"llama.context_length": 4096}})
        server.others["/api/chat"] = send(200, told)
        model = open_model("ollama:tiny", base_url=server.url, tokenizer="bytes")
        with listening_with(model, store) as url, client_of(url) as client:
            reply = client.chat.completions.create(model="tiny", messages=HELLO)
        assert reply.choices[0].message.content == "Hi."
        (body,) = server.of("/api/chat")
        assert body["options"]["num_ctx"] == 4096
        assert server.bodies == []


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 2},
        {"n": 0},
        {"tool_choice": "required"},
        {"logprobs": True},
        {"presence_penalty": 2},
        {"response_format": {"type": "json_object"}},
        {"reasoning_effort": "none"},
        {"extra_body": {"guided_json": {"type": "object"}}},
        {"extra_body": {"min_tokens": 50}},
        {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
    ],
)
def test_what_such_models_cannot_do_is_refused(store: RunStore, fields: dict[str, Any]) -> None:
    model = ScriptedModel(["never"], window=2048)
    with (
        listening_with(model, store) as url,
        client_of(url) as client,
        pytest.raises(BadRequestError, match="has no effect"),
    ):
        client.chat.completions.create(model=model.name, messages=HELLO, **fields)
    assert model.requests == []


@pytest.mark.parametrize("field", [{"tools": LONG_TOOLS}, {"n": 2}, {"max_tokens": 0}])
def test_what_it_can_not_do_is_refused_before_anything_is_read(
    store: RunStore, field: dict[str, Any]
) -> None:
    with (
        listening_with(ExtractiveModel(window=4096), store) as url,
        client_of(url) as client,
        pytest.raises(BadRequestError, match=next(iter(field))),
    ):
        client.chat.completions.create(
            model="extractive", messages=[{"role": "user", "content": PARTS}], **field
        )
    assert list(store.runs()) == []


def test_what_would_change_nothing_is_not_refused(store: RunStore) -> None:
    model = ScriptedModel(["Hi."] * 2, window=2048)
    with listening_with(model, store) as url, client_of(url) as client:
        client.chat.completions.create(
            model=model.name,
            messages=HELLO,
            presence_penalty=0,
            response_format={"type": "text"},
            n=1,
            user="u1",
            metadata={"a": "b"},
            store=True,
            tool_choice="none",
            extra_body={"repetition_penalty": 1.0, "top_k": -1, "stop_token_ids": []},
        )
        client.responses.create(
            model=model.name, input="Hi", text={"format": {"type": "text"}}, tools=[]
        )


def test_their_errors_come_in_openais_form(store: RunStore) -> None:
    def fail(request: ChatRequest) -> str:
        raise ConnectionFailed("the weights are gone")

    with (
        listening_with(ScriptedModel(fail, window=2048), store) as url,
        client_of(url) as client,
        pytest.raises(InternalServerError, match="the weights are gone") as caught,
    ):
        client.chat.completions.create(model="scripted", messages=HELLO)
    assert caught.value.status_code == 502


def test_a_long_history_is_summarised(store: RunStore) -> None:
    def reply(request: ChatRequest) -> str:
        if request.kind == "summary":
            return "<summary>They talked.</summary>"
        return "Indeed."

    model = ScriptedModel(reply, window=4096)
    turns: list[Any] = []
    for n in range(40):
        turns += [
            {"role": "user", "content": f"Is it {n}? " * 9},
            {"role": "assistant", "content": "No. " * 9},
        ]
    with listening_with(model, store) as url, client_of(url) as client:
        said: Any = client.chat.completions.create(model=model.name, messages=[*turns, *HELLO])
    assert said.choices[0].message.content == "Indeed."
    assert said.memagent["summaries"] > 0
    assert "They talked." in json.dumps([m.content for m in model.requests[-1].messages])


def test_an_error_in_a_stream_ends_it(store: RunStore) -> None:
    async def fail(request: ChatRequest) -> str:
        await asyncio.sleep(0)
        raise ConnectionFailed("the weights are gone")

    model = ScriptedModel(fail, window=4096)
    given: Any = [{"role": "user", "content": PARTS}]
    with (
        listening_with(model, store) as url,
        client_of(url) as client,
        pytest.raises(APIError, match="weights are gone"),
    ):
        list(client.chat.completions.create(model=model.name, messages=given, stream=True))


def test_a_stream_is_kept_alive_while_the_model_answers(
    monkeypatch: pytest.MonkeyPatch, store: RunStore, http: httpx.Client
) -> None:
    monkeypatch.setattr(wire, "PING_SECONDS", 0.05)
    alive = threading.Event()

    async def answer(request: ChatRequest) -> str:
        assert await asyncio.to_thread(alive.wait, 5)
        return "Hello."

    body = {"messages": HELLO, "stream": True}
    with (
        listening_with(ScriptedModel(answer, window=4096), store) as url,
        http.stream("POST", f"{url}/chat/completions", json=body) as response,
    ):
        lines = response.iter_lines()
        assert ": at work" in lines, "the answer came first"
        alive.set()
        assert next(reversed(list(filter(None, lines)))) == "data: [DONE]"
