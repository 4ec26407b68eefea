"""Addresses, names and lists that are not quite right: each is said at once, before a run is made."""

import asyncio
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.models.chat_server import Handler, Script, Server, send
from tests.models.test_openai import request

from memagent import MemoryAgent, Retry, open_model
from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ConnectionFailed,
    ModelNotFound,
    RequestRefused,
    TLSFailed,
    WindowUnknown,
)
from memagent.models.openai import OpenAIModel


@contextmanager
def tls_only(folder: Path) -> Iterator[str]:
    """The http:// URL of a port that speaks TLS, with a certificate that nobody trusts."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    where = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*made, *where], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Server(("127.0.0.1", 0), Handler) as http:
        http.socket = context.wrap_socket(http.socket, server_side=True)
        threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{http.server_address[1]}/v1"
        http.shutdown()


# --- a base URL that is not quite right


def below(script: Script, path: str = "/v1/models") -> None:
    """Lists models at one path alone."""
    listed = script.models

    def models(handler: Any) -> None:
        (listed if handler.path == path else send(404, {"detail": "Not Found"}))(handler)

    script.models = models


async def test_a_base_url_without_v1_is_completed(server: Script) -> None:
    server.be_vllm(window=2000)
    below(server)
    model = OpenAIModel("tiny", base_url=server.url.removesuffix("/v1") + "/")
    assert await model.window() == 2000
    assert (await model.complete(request())).text == "hello"
    assert server.paths == ["/v1/chat/completions"]
    assert server.of("/tokenize"), "it counts"
    assert repr(model) == f"OpenAIModel('openai:tiny', base_url={server.url!r})"
    await model.aclose()


async def test_a_key_that_only_v1_asks_for_is_the_error(server: Script) -> None:
    server.models = send(401, {"error": "Unauthorized"})
    below(server)
    model = OpenAIModel("tiny", base_url=server.url.removesuffix("/v1"))
    with pytest.raises(AuthenticationFailed):
        await model.window()
    await model.aclose()


@pytest.mark.parametrize(
    "page", [send(404, {}), send(200, b"<html>Welcome</html>")], ids=["404", "html"]
)
async def test_a_base_url_that_leads_nowhere_says_so_before_a_run_is_made(
    server: Script, page: Any, tmp_path: Path
) -> None:
    server.models = page
    base = server.url.removesuffix("/v1")
    async with MemoryAgent(
        open_model("openai:tiny", base_url=base), store=tmp_path / "runs"
    ) as agent:
        with pytest.raises((RequestRefused, BadResponse), match=r"ends? in /v1|is the base URL"):
            await agent.aask("Some text.", "Who?", run_id="dead")
        assert await asyncio.to_thread(agent.store.find, "dead") is None
    assert server.bodies == []
    assert server.listings == 2, "once at each place"


FIXED = [
    send(500, {"message": "oops"}),
    send(200, [{"name": "tiny"}]),
    send(200, b"<html>Welcome</html>", Content_Type="text/html"),
    send(200, {"data": [{"id": "tiny", "max_model_len": -1}]}),
    send(200, {"data": [{"id": "tiny", "max_model_len": True}]}),
    send(200, {"data": [{"id": "tiny", "max_model_len": "long"}]}),
    send(200, [{"id": "tiny", "owned_by": 7}]),
]


@pytest.mark.parametrize("models", FIXED, ids=range(len(FIXED)))
@pytest.mark.parametrize("where", ["agent", "model"])
async def test_a_window_that_is_given_wins_at_once(
    server: Script, models: Any, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    server.models = models
    given = 3000 if where == "model" else None
    model = open_model("openai:tiny", base_url=server.url, window=given)
    start = time.monotonic()
    async with MemoryAgent(model, window=3000, store=None) as agent:
        result = await agent.aask("Natasha marries Pierre.", "Whom does Natasha marry?")
    assert result.answer == "hello"
    assert time.monotonic() - start < 3
    assert len(caplog.records) == 1, "that bytes are counted"


@pytest.mark.parametrize("models", FIXED, ids=range(len(FIXED)))
async def test_without_a_window_a_bad_list_is_an_error_at_once(server: Script, models: Any) -> None:
    server.models = models
    start = time.monotonic()
    async with MemoryAgent(open_model("openai:tiny", base_url=server.url), store=None) as agent:
        with pytest.raises((RequestRefused, BadResponse, WindowUnknown)):
            await agent.aask("Natasha marries Pierre.", "Whom does Natasha marry?")
    assert time.monotonic() - start < 3


@pytest.mark.parametrize(
    ("owner", "served"),
    [("vllm", ["big"]), ("sglang", ["big"]), ("library", ["big:latest"]), ("me", ["big", "other"])],
)
async def test_a_wrong_name_is_found_before_a_run_is_made(
    server: Script, owner: str, served: list[str], tmp_path: Path
) -> None:
    server.serve_models(*({"id": name, "owned_by": owner} for name in served))
    window = None if owner == "me" else 3000
    async with MemoryAgent(
        open_model("openai:tiny", base_url=server.url), window=window, store=tmp_path / "runs"
    ) as agent:
        with pytest.raises(ModelNotFound, match="it serves 'big"):
            await agent.aask("Some text.", "Who?", run_id="dead")
        assert await asyncio.to_thread(agent.store.find, "dead") is None
    assert server.bodies == []


@pytest.mark.parametrize(
    ("owner", "served"),
    [
        ("library", ["tiny:latest", "b"]),
        ("me", ["b", "c"]),
        ("openai", ["b", "openai/*"]),
        ("me", ["b.gguf"]),
    ],
)
async def test_names_that_a_server_may_know_are_tried(
    server: Script, owner: str, served: list[str]
) -> None:
    server.serve_models(*({"id": name, "owned_by": owner} for name in served))
    async with MemoryAgent(
        open_model("openai:tiny", base_url=server.url), window=3000, store=None
    ) as agent:
        assert (await agent.aask("Some text.", "Who?")).answer == "hello"


# --- connections that cannot come about


@pytest.mark.parametrize("status", [301, 302, 303])
async def test_a_redirect_that_loses_the_request_says_where_to(server: Script, status: int) -> None:
    server.default = send(status, b"", Location="/elsewhere/v1/chat/completions?key=abcdef")
    base = server.url.removesuffix("/v1")
    model = Retry(OpenAIModel("tiny", base_url=server.url), max_wait=0.01)
    with pytest.raises(
        RequestRefused, match=rf"redirects \({status}\) to '{base}/elsewhere"
    ) as caught:
        await model.complete(request())
    assert f"give '{base}/elsewhere/v1' as the base URL" in str(caught.value)
    assert "abcdef" not in str(caught.value)
    assert len(server.bodies) == 1
    await model.aclose()


@pytest.mark.parametrize("status", [302, 307, 308])
async def test_a_redirect_to_another_server_gets_neither_document_nor_headers(
    server: Script, second: Script, status: int
) -> None:
    there = second.url.replace("127.0.0.1", "me:hunter22@localhost")
    server.default = send(status, b"", Location=f"{there}/chat/completions?key=abcdef")
    server.others = {"/tokenize": send(status, b"", Location=f"{there}/tokenize")}
    server.models = send(status, b"", Location=f"{there}/models?key=abcdef")
    model = OpenAIModel("tiny", base_url=server.url, default_headers={"X-Key": "sk-123456"})
    words = rf"redirects \({status}\) to .*, which is another server; give '{second.url}".replace(
        "127.0.0.1", "localhost"
    )
    with pytest.raises(RequestRefused, match=words) as caught:
        await model.complete(request())
    with pytest.raises(RequestRefused, match="which is another server"):
        await asyncio.to_thread(model.servers[0].ask, "/tokenize", {})
    await model.counter()
    assert "hunter22" not in str(caught.value)
    assert "abcdef" not in str(caught.value)
    assert second.connections == 0
    await model.aclose()


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_to_nowhere_is_an_error_of_ours(server: Script, status: int) -> None:
    server.default = send(status, b"", Location="http://[::1/login")
    model = OpenAIModel("tiny", base_url=server.url)
    with pytest.raises(RequestRefused, match="which is not a URL; give the server's own"):
        await model.complete(request())
    await model.aclose()


async def test_a_redirect_that_keeps_the_request_is_followed(server: Script) -> None:
    server.replies.append(send(307, b"", Location=f"{server.url}/chat/completions"))
    model = OpenAIModel("tiny", base_url=server.url)
    assert (await model.complete(request())).text == "hello"
    assert server.bodies[0] == server.bodies[1]
    await model.aclose()


@pytest.mark.parametrize(
    ("kind", "scheme", "words"),
    [
        ("tls", "https", "certificate is not trusted .*SSL_CERT_FILE"),
        ("plain", "https", "start the base URL with http://"),
        ("tls", "http", "start the base URL with https://"),
        ("nginx", "http", "start the base URL with https://"),
    ],
)
async def test_mistakes_with_tls_are_said_at_once(
    server: Script, kind: str, scheme: str, words: str, tmp_path: Path
) -> None:
    server.models = send(400, b"The plain HTTP request was sent to HTTPS port")
    with ExitStack() as stack:
        url = stack.enter_context(tls_only(tmp_path)) if kind == "tls" else server.url
        url = url.replace("http://", f"{scheme}://")
        model = Retry(OpenAIModel("tiny", base_url=url, window=3000))
        start = time.monotonic()
        with pytest.raises(TLSFailed, match=words):
            await model.counter()
        if kind != "nginx":
            with pytest.raises(TLSFailed, match=words):
                await model.complete(request())
        assert time.monotonic() - start < 3
        await model.aclose()


async def test_a_silent_port_is_given_up_when_no_connection_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("memagent.models.openai_client.CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/v1"
        model = OpenAIModel("tiny", base_url=url)
        start = time.monotonic()
        for ask in (model.window, model.counter, partial(model.complete, request())):
            with pytest.raises(ConnectionFailed, match="does it speak TLS there"):
                await ask()
        assert time.monotonic() - start < 3
        await model.aclose()
