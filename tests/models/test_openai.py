import asyncio
import logging
import traceback
from typing import Any

import pytest
from tests.models.chat_server import (
    Behaviour,
    Script,
    chat,
    half_a_body,
    hang_up,
    say,
    send,
    slow,
    trickle,
)

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ConfigError,
    ConnectionFailed,
    ContextOverflow,
    ModelError,
    ModelNotFound,
    RequestRefused,
    RequestTimeout,
    ServerBusy,
    ServerFailed,
)
from memagent.messages import ChatRequest, FinishReason, Message, Sampling
from memagent.models.openai import OpenAIModel

KEY = "sk-very-secret-0123456789"


def request(text: str = "hi", **fields: Any) -> ChatRequest:
    return ChatRequest(messages=(Message(role="user", content=text),), max_tokens=20, **fields)


async def complete(server: Script | str, ask: ChatRequest | None = None, **options: Any):
    url = server if isinstance(server, str) else server.url
    model = OpenAIModel("tiny", base_url=url, **options)
    try:
        return await model.complete(ask or request())
    finally:
        await model.aclose()


async def test_reads_text_usage_and_finish_reason(server: Script) -> None:
    reply = await complete(server)
    assert reply.text == "hello"
    assert reply.finish_reason is FinishReason.STOP
    usage = reply.usage
    assert (usage.calls, usage.prompt_tokens, usage.completion_tokens) == (1, 11, 3)
    assert usage.cached_tokens == 4
    assert server.paths == ["/v1/chat/completions"]


async def test_sends_what_all_servers_know(server: Script) -> None:
    ask = request(sampling=Sampling(temperature=0.1, top_p=0.5), seed=7, thinking=False)
    await complete(server, ask, extra_body={"top_k": 1, "temperature": 0.9})
    assert server.bodies == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": 20,
            "temperature": 0.9,
            "top_p": 0.5,
            "seed": 7,
            "top_k": 1,
        }
    ]


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (401, {"error": {"message": "bad key"}}, AuthenticationFailed, ["bad key", "api_key="]),
        (403, {"message": "no entry"}, AuthenticationFailed, ["no entry", "MEMAGENT_API_KEY"]),
        (429, {"error": {"message": "slow down"}}, ServerBusy, ["slow down"]),
        (
            429,
            {"error": {"message": "pay", "code": "insufficient_quota"}},
            RequestRefused,
            ["quota"],
        ),
        (503, {"message": "The request queue is full."}, ServerBusy, ["queue is full"]),
        (500, b"<html>oops</html>", ServerFailed, ["500", "oops"]),
        (502, b"", ServerFailed, ["502"]),
        (408, {"detail": "late"}, RequestTimeout, ["late"]),
        (422, {"detail": [{"msg": "extra field"}]}, RequestRefused, ["extra field"]),
        (413, b"too large", RequestRefused, ["too large"]),
        (
            400,
            {"object": "error", "message": "The input (9000 tokens) is longer than the model's "
             "context length (8192 tokens)."},
            ContextOverflow,
            ["9000", "--window"],
        ),
        (
            400,
            {"error": {"message": "m", "type": "BadRequestError", "param": "input_tokens"}},
            ContextOverflow,
            ["--window"],
        ),
        (
            400,
            {"error": {"message": "m", "type": "exceed_context_size_error", "n_ctx": 8}},
            ContextOverflow,
            [],
        ),
        (400, {"error": {"message": "m", "code": "context_length_exceeded"}}, ContextOverflow, []),
    ],
)  # fmt: skip
async def test_each_status_has_its_error(
    server: Script, status: int, body: Any, kind: type[ModelError], words: list[str]
) -> None:
    server.replies.append(send(status, body))
    with pytest.raises(kind) as caught:
        await complete(server)
    assert type(caught.value) is kind
    for word in (*words, "openai:tiny", server.url, str(status)):
        assert word in str(caught.value)
    assert len(server.bodies) == 1, "the client must not retry by itself"


async def test_retry_after_reaches_the_error(server: Script) -> None:
    server.replies.append(send(429, {"error": {"message": "wait"}}, Retry_After="2.5"))
    with pytest.raises(ServerBusy) as caught:
        await complete(server)
    assert caught.value.retry_after == 2.5


async def test_missing_model_names_the_served_ones(server: Script) -> None:
    server.serve_models({"id": "big"}, {"id": "other"})
    server.replies.append(send(404, {"error": {"message": "The model `tiny` does not exist."}}))
    with pytest.raises(ModelNotFound, match=r"does not exist; it serves 'big', 'other'"):
        await complete(server)
    server.replies.append(send(400, {"message": "Invalid model name"}))
    with pytest.raises(ModelNotFound, match="it serves 'big', 'other'"):
        await complete(server)


async def test_wrong_path_says_so(server: Script) -> None:
    server.replies.append(send(404, {"detail": "Not Found"}))
    with pytest.raises(ModelNotFound, match=r"base URL right\? \(most base URLs end in /v1\)"):
        await complete(server.url.removesuffix("/v1"))


@pytest.mark.parametrize(
    "behaviour",
    [
        send(200, b"<html><body>Welcome</body></html>", Content_Type="text/html"),
        send(200, b'{"choices": [{"mess'),
        send(200, {"object": "error", "message": "Welcome"}),
        send(200, {"choices": []}),
        send(200, {"choices": [{"finish_reason": "stop"}]}),
        send(200, chat(content=5)),
    ],
)
async def test_no_completion_is_a_bad_response(server: Script, behaviour: Any) -> None:
    server.replies.append(behaviour)
    with pytest.raises(BadResponse, match="not a chat completion") as caught:
        await complete(server)
    assert caught.value.retryable


@pytest.mark.parametrize("behaviour", [half_a_body, hang_up])
async def test_broken_connections(server: Script, behaviour: Any) -> None:
    server.replies.append(behaviour)
    with pytest.raises(ConnectionFailed, match="is a server running at http"):
        await complete(server)


async def test_nobody_listens(nobody: str) -> None:
    with pytest.raises(ConnectionFailed, match="is a server running at") as caught:
        await complete(nobody)
    assert nobody in str(caught.value)


@pytest.mark.parametrize("behaviour", [slow(5), trickle])
async def test_timeout(server: Script, behaviour: Behaviour) -> None:
    server.replies.append(behaviour)
    with pytest.raises(RequestTimeout, match=r"no answer within 0\.2 s"):
        await complete(server, timeout=0.2)
    assert await asyncio.to_thread(server.left.wait, 5)


async def test_cancelling_closes_the_connection(server: Script) -> None:
    server.replies.append(slow(20))
    model = OpenAIModel("tiny", base_url=server.url)
    call = asyncio.create_task(model.complete(request()))
    assert await asyncio.to_thread(server.waiting.wait, 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await asyncio.to_thread(server.left.wait, 5)
    assert (await model.complete(request())).text == "hello"
    await model.aclose()


async def test_half_a_surrogate_pair_is_refused_by_name(server: Script) -> None:
    with pytest.raises(RequestRefused, match=r"\\ud800"):
        await complete(server, request(), extra_body={"user": "a\ud800b"})


async def test_no_secret_is_ever_shown(server: Script, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    server.replies.append(send(401, {"error": {"message": f"wrong key {KEY}, pass word-1!"}}))
    with_user = server.url.replace("://", "://user:word-1%21@")
    model = OpenAIModel("tiny", base_url=with_user, default_headers={"X-Key": KEY})
    with pytest.raises(AuthenticationFailed) as caught:
        await model.complete(request())
    await model.aclose()
    shown = "".join(traceback.format_exception(caught.value)) + repr(model) + caplog.text
    for secret in (KEY, "word-1", "user:"):
        assert secret not in shown
    assert "wrong key ***, pass ***" in shown
    sent = server.headers[0]["authorization"]
    assert sent == "Basic dXNlcjp3b3JkLTEh"


async def test_bearer_key_and_headers_are_sent(server: Script) -> None:
    await complete(server, api_key=KEY, default_headers={"X-Team": "blue"})
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert server.headers[0]["x-team"] == "blue"


@pytest.mark.parametrize(
    ("entry", "window"),
    [
        ({"id": "tiny", "max_model_len": 4096}, 4096),
        ({"id": "tiny", "meta": {"n_ctx": 2048, "n_ctx_train": 9999}}, 2048),
        ({"id": "tiny", "context_length": 1024}, 1024),
        ({"id": "tiny"}, None),
        ({"id": "/models/the-only-one.gguf", "meta": {"n_ctx": 512}}, 512),
    ],
)
async def test_window_from_the_model_list(
    server: Script, entry: dict[str, Any], window: int | None
) -> None:
    server.serve_models(entry)
    model = OpenAIModel("tiny", base_url=server.url)
    assert await asyncio.gather(*(model.window() for _ in range(5))) == [window] * 5
    assert await model.window() == window
    assert server.listings == 1
    await model.aclose()


async def test_window_is_asked_for_anew_when_a_run_may_begin(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent.models.server.FRESH", 0.0)
    model = OpenAIModel("tiny", base_url=server.url)
    for window in (64, 128, 32):
        server.serve_models({"id": "tiny", "max_model_len": window})
        assert await model.window() == window
    await model.aclose()


async def test_window_of_another_model_is_not_taken(server: Script) -> None:
    server.serve_models({"id": "a", "max_model_len": 1}, {"id": "b", "max_model_len": 2})
    model = OpenAIModel("tiny", base_url=server.url)
    with pytest.raises(ModelNotFound, match="it serves 'a', 'b'"):
        await model.window()
    await model.aclose()
    told = OpenAIModel("tiny", base_url=server.url, window=100)
    assert await told.window() == 100
    await told.aclose()


async def test_window_given_asks_nobody(nobody: str) -> None:
    assert await OpenAIModel("tiny", base_url=nobody, window=100).window() == 100


async def test_window_where_nothing_is_listed(server: Script, nobody: str) -> None:
    model = OpenAIModel("tiny", base_url=server.url)
    assert await model.window() is None
    await model.aclose()
    absent = OpenAIModel("tiny", base_url=nobody)
    with pytest.raises(ConnectionFailed):
        await absent.window()
    await absent.aclose()


async def test_window_failure_is_not_remembered(server: Script) -> None:
    model = OpenAIModel("tiny", base_url=server.url)
    for status, kind in ((503, ServerBusy), (401, AuthenticationFailed)):
        server.models = send(status, {"message": "no"})
        with pytest.raises(kind):
            await model.window()
    server.models = send(200, b"<html>")
    with pytest.raises(BadResponse, match="not a list of models"):
        await model.window()
    server.serve_models({"id": "tiny", "max_model_len": 64})
    assert await model.window() == 64
    await model.aclose()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": " "}, "name"),
        ({"window": 0}, "0"),
        ({"timeout": 0}, "timeout"),
        ({"base_url": "localhost:8000"}, "http://"),
        ({"api_key": "two words"}, "9 characters"),
        ({"extra_body": {"top_k": float("nan")}}, r"extra_body\['top_k'\]=nan is not JSON"),
        ({"extra_body": {"stop": {"a"}}}, r"extra_body\['stop'\]={'a'} is not JSON"),
    ],
)
def test_impossible_arguments(fields: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"model": "m", "base_url": "http://h/v1"} | fields
    with pytest.raises(ConfigError, match=words):
        OpenAIModel(**arguments)


async def test_reasoning_comes_apart(server: Script) -> None:
    server.replies += [say("a", reasoning="r"), say("b", reasoning_content="c"), say(None)]
    assert (await complete(server)).reasoning == "r"
    assert (await complete(server)).reasoning == "c"
    assert (await complete(server)).text == ""
