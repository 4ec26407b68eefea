"""What fits reaches the engine byte for byte, and so does its answer the client."""

import gzip
import json
import ssl
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, BadRequestError, InternalServerError, OpenAI
from tests.models.chat_server import Server, chat, half_a_body, hang_up, say, send, slow
from tests.serve.conftest import MODEL, SECRET, listening, listening_with
from tests.serve.engine import Engine, RawHandler, broken_stream, in_pieces, refuse, serving

from memagent import RunStore, open_model

ODD = (
    b'{ "model":"tiny",\n"messages" : [{"role":"user","content":"Caf\\u00e9 \xf0\x9f\x99\x82"}],'
    b'"temperature":1.0e0,"x_unknown":{"b":1,"a":[1.50,null]},"logprobs":true }\n'
)
JSON = {"Content-Type": "application/json"}


def post(http: httpx.Client, url: str, raw: bytes, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return http.post(f"{url}/chat/completions", content=raw, headers=JSON | named)


def test_requests_and_answers_are_untouched(engine: Engine, url: str, http: httpx.Client) -> None:
    answer = b'{"choices": [{"message":{"role":"assistant","content":"caf\\u00e9"}}],  "x":1.50}\n'
    engine.default = send(200, answer, X_Request_Id="r1", X_Internal="secret")
    response = post(http, url, ODD)
    assert engine.raws == [ODD]
    assert response.content == answer
    assert response.headers["x-request-id"] == "r1"
    assert "x-internal" not in response.headers
    assert not [name for name in response.headers if name.startswith("x-memagent")]


def test_packed_bodies_stay_packed(engine: Engine, url: str, http: httpx.Client) -> None:
    packed, answer = gzip.compress(ODD), gzip.compress(json.dumps(chat("hi")).encode())
    engine.default = send(200, answer, Content_Encoding="gzip")
    headers = {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    with http.stream(
        "POST", f"{url}/chat/completions", content=packed, headers=JSON | headers
    ) as response:
        raw = b"".join(response.iter_raw())
    assert engine.raws == [packed]
    assert engine.seen[0]["content-encoding"] == engine.seen[0]["accept-encoding"] == "gzip"
    assert raw == answer


def test_only_named_headers_pass(engine: Engine, url: str, http: httpx.Client) -> None:
    headers = {"Authorization": "Bearer mine", "Cookie": "a=b", "X-Forwarded-For": "6.6.6.6"}
    headers |= {"traceparent": "00-1-2-01", "X-Api-Key": "mine", "OpenAI-Organization": "o"}
    assert post(http, url, ODD, **headers).status_code == 200
    assert engine.seen[0]["authorization"] == f"Bearer {SECRET}"
    assert engine.seen[0]["traceparent"] == "00-1-2-01"
    allowed = {
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
    }
    assert set(engine.seen[0]) <= allowed | {"host", "user-agent", "traceparent"}


def test_a_stream_comes_piece_by_piece(engine: Engine, url: str, http: httpx.Client) -> None:
    pieces = [b'data: {"a": 1}\n\n', b"data: [DONE]\n\n"]
    go_on = threading.Event()
    engine.default = in_pieces(pieces, then=go_on)
    with http.stream("POST", f"{url}/chat/completions", content=ODD, headers=JSON) as response:
        came = response.iter_raw()
        assert next(came) == pieces[0]  # while the engine holds back the rest
        go_on.set()
        assert b"".join(came) == pieces[1]


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
def test_the_engines_errors_are_untouched(
    engine: Engine, url: str, http: httpx.Client, status: int
) -> None:
    engine.default = send(status, b'{"error":  {"message":"no \\u00e9"}}', Retry_After="7")
    response = post(http, url, ODD)
    assert response.status_code == status
    assert response.content == b'{"error":  {"message":"no \\u00e9"}}'
    assert response.headers["retry-after"] == "7"


@pytest.mark.parametrize("status", [401, 403])
def test_the_endpoints_key_is_not_the_callers_fault(
    engine: Engine, client: OpenAI, status: int
) -> None:
    engine.default = refuse(status, f"Incorrect API key: {SECRET}")
    with pytest.raises(InternalServerError, match="refuses the endpoint's key") as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])
    assert caught.value.status_code == 502
    assert SECRET not in str(caught.value.response.text)


@pytest.mark.parametrize("packed", [False, True])
def test_errors_that_repeat_the_key_are_cleaned(
    engine: Engine, url: str, http: httpx.Client, packed: bool
) -> None:
    raw = json.dumps({"error": {"message": f"bad header: Bearer {SECRET}"}}).encode()
    if packed:
        engine.default = send(400, gzip.compress(raw), Content_Encoding="gzip")
    else:
        engine.default = send(400, raw)
    response = post(http, url, ODD, Accept_Encoding="gzip")
    assert response.status_code == 400
    assert SECRET not in response.text
    assert "bad header" in response.json()["error"]["message"]


def test_an_engine_that_is_gone(engine: Engine, client: OpenAI) -> None:
    engine.default = hang_up
    with pytest.raises(InternalServerError, match="cannot be reached") as caught:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])
    assert caught.value.status_code == 502
    assert caught.value.type == "server_error"


@pytest.mark.parametrize(
    "fault", [refuse(503, "dead"), refuse(500, "ill"), refuse(429, "busy"), hang_up]
)
@pytest.mark.parametrize("first", [True, False])
def test_another_server_answers_for_an_ill_one(
    engine: Engine, store: RunStore, http: httpx.Client, fault: Any, first: bool
) -> None:
    engine.default = fault
    with serving() as good:
        urls = [engine.url, good.url] if first else [good.url, engine.url]
        with listening_with(open_model(f"vllm:{MODEL}", base_url=urls), store) as url:
            assert [post(http, url, ODD).status_code for _ in range(10)] == [200] * 10
            good.default = fault
            assert post(http, url, ODD).status_code >= 429
    assert len(engine.raws) < 5


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_is_followed(engine: Engine, url: str, http: httpx.Client, status: int) -> None:
    engine.replies.append(send(status, b"", Location=f"{engine.url}/other/chat/completions"))
    assert post(http, url, ODD).json()["choices"]
    assert engine.raws == [ODD, ODD]
    assert engine.paths == ["/v1/chat/completions", "/v1/other/chat/completions"]


@pytest.mark.parametrize("status", [307, 308])
def test_a_redirect_to_another_server_is_an_error(
    engine: Engine, url: str, http: httpx.Client, status: int
) -> None:
    with serving() as other:
        engine.default = send(status, b"", Location=f"{other.url}/chat/completions")
        response = post(http, url, ODD)
        assert response.status_code == 502
        assert f"give '{other.url}' as the base URL" in response.json()["error"]["message"]
        assert other.raws == []


def test_a_redirect_that_would_lose_the_request_is_an_error(
    engine: Engine, url: str, http: httpx.Client
) -> None:
    engine.default = send(302, b"", Location=f"{engine.url}/elsewhere/chat/completions")
    response = post(http, url, ODD)
    assert response.status_code == 502
    assert f"give '{engine.url}/elsewhere' as the base URL" in response.json()["error"]["message"]


def test_the_engines_certificate_may_be_a_private_one(
    engine: Engine,
    store: RunStore,
    http: httpx.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-addext",
    ]
    made += ["subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Server(("127.0.0.1", 0), RawHandler) as tls:
        tls.script, tls.socket = engine, context.wrap_socket(tls.socket, server_side=True)
        threading.Thread(target=tls.serve_forever, args=(0.02,), daemon=True).start()
        with listening(f"https://localhost:{tls.server_address[1]}/v1", store) as url:
            assert post(http, url, ODD).status_code == 200
        tls.shutdown()


@pytest.mark.parametrize("behaviour", [broken_stream, half_a_body])
def test_half_an_answer_is_never_taken_for_a_whole_one(
    engine: Engine, url: str, http: httpx.Client, behaviour: Any
) -> None:
    engine.default = behaviour
    with pytest.raises(httpx.RemoteProtocolError):
        post(http, url, ODD)
    engine.default = say()
    assert post(http, url, ODD).status_code == 200


def test_a_client_that_leaves_frees_the_engine(engine: Engine, url: str) -> None:
    engine.default = slow(20)
    with pytest.raises(httpx.ReadTimeout), httpx.Client(timeout=0.5, trust_env=False) as hasty:
        post(hasty, url, ODD)
    assert engine.left.wait(5)


async def test_the_async_client_streams_tool_calls(engine: Engine, aclient: AsyncOpenAI) -> None:
    call = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
    }
    about = {"id": "x", "model": MODEL, "created": 0, "object": "chat.completion.chunk"}
    chunks = [
        {**about, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        for delta, finish in (
            ({"role": "assistant", "tool_calls": [call]}, None),
            ({}, "tool_calls"),
        )
    ]
    engine.default = in_pieces(
        [f"data: {json.dumps(c)}\n\n".encode() for c in chunks] + [b"data: [DONE]\n\n"]
    )
    tool: Any = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    async with aclient.chat.completions.stream(
        model=MODEL, messages=[{"role": "user", "content": "Hi"}], tools=[tool]
    ) as stream:
        final = await stream.get_final_completion()
    assert final.choices[0].message.tool_calls
    assert engine.bodies[0]["tools"] == [tool]


def test_the_model_is_listed_by_its_servers_name(client: OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "memagent"


def test_a_request_too_long_for_its_output_is_the_engines_to_refuse(
    engine: Engine, client: OpenAI
) -> None:
    engine.default = refuse(400, "max_tokens is too large")
    with pytest.raises(BadRequestError, match="too large"):
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_tokens=5000
        )
    assert len(engine.raws) == 1


def test_what_passes_costs_little_time(engine: Engine, url: str, http: httpx.Client) -> None:
    post(http, url, ODD)
    begin = time.monotonic()
    for _ in range(50):
        assert post(http, url, ODD).status_code == 200
    assert (time.monotonic() - begin) / 50 < 0.1
