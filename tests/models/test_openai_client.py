import asyncio
import gc
import sys
import threading
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
from tests.models.chat_server import Handler, Script, send

from memagent import open_model
from memagent.errors import ConfigError, ConnectionFailed
from memagent.messages import ChatRequest, Message
from memagent.models import openai_client
from memagent.models.openai import OpenAIModel
from memagent.models.openai_client import Clients
from memagent.threads import run_sync


def clients(url: str, key: str | None = None) -> Clients:
    return Clients("m", url, key, {}, 60.0)


async def use(holder: Clients) -> int:
    client = await holder.get()
    await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    return id(client)


async def test_one_client_a_loop_however_many_ask() -> None:
    holder = clients("http://localhost:1/v1")
    first, *others = await asyncio.gather(*(holder.get() for _ in range(5)))
    assert all(other is first for other in others)
    elsewhere = await asyncio.to_thread(lambda: asyncio.run(holder.get()))
    assert elsewhere is not first
    await holder.aclose()
    assert first.is_closed()


def test_a_loop_that_ends_leaves_no_connection(server: Script) -> None:
    holder = clients(server.url)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(use(holder))
        asyncio.run(use(holder))
        gc.collect()
    assert server.connections == 2


async def test_aclose_closes_other_running_loops(server: Script) -> None:
    holder = clients(server.url)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(use(holder), loop))
        client = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(holder.get(), loop))
        await use(holder)
        await holder.aclose()
        assert client.is_closed()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        await asyncio.to_thread(thread.join)
        loop.close()


async def test_connections_are_kept_alive(server: Script) -> None:
    holder = clients(server.url)
    for _ in range(3):
        await use(holder)
    assert server.connections == 1
    await holder.aclose()


async def test_an_idle_connection_is_given_up_before_the_server_closes_it(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert openai_client.KEEP_SECONDS < 5, "uvicorn's limit"
    monkeypatch.setattr(openai_client, "KEEP_SECONDS", 0.2)
    server.serve_models({"id": "m"})
    holder = clients(server.url)
    for connections in (2, 4):
        await use(holder)
        await asyncio.to_thread(ask, holder)
        assert server.connections == connections
        await asyncio.sleep(0.3)
    await holder.aclose()


def ask(holder: Clients) -> int:
    return run_sync(use(holder))


def test_worker_threads_share_one_client(server: Script) -> None:
    holder = clients(server.url, "sk-123456")
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: ask(holder), range(24)))
    assert len(found) == 1
    assert server.connections <= 8, "connections are kept"
    client = run_sync(holder.get())
    assert client.max_retries == 0
    assert client.api_key == "sk-123456"
    asyncio.run(holder.aclose())
    assert client.is_closed()


async def test_closing_is_no_end(server: Script) -> None:
    holder = clients(server.url)
    await holder.aclose()
    for _ in range(2):
        await use(holder)
        await asyncio.to_thread(ask, holder)
        await holder.aclose()
    assert server.connections == 4


@pytest.mark.parametrize("team", ["X-Team", "x-team"])
async def test_headers_that_openai_finds_in_the_environment_are_not_sent(
    server: Script, monkeypatch: pytest.MonkeyPatch, team: str
) -> None:
    ours = {"Authorization": "Bearer hers", "X-Gateway": "word", team: "red", "OpenAI-Project": "p"}
    lines = "\n".join(f"{name}: {value}" for name, value in ours.items())
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", lines)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    listed: list[dict[str, str]] = []

    def models(handler: Handler) -> None:
        listed.append({name.lower(): value for name, value in handler.headers.items()})
        send(200, {"data": [{"id": "m"}]})(handler)

    server.models = models
    given = {"X-Team": "blue", "openai-organization": "org-2"}
    for base, headers in ((server.url, given), (server.url.removesuffix("/v1"), {})):
        model = OpenAIModel("m", base_url=base, api_key="mine", default_headers=headers)
        await model.window()
        asked = Message(role="user", content="x")
        await model.complete(ChatRequest(messages=(asked,), max_tokens=9))
        await model.aclose()
        for sent in (listed[-1], server.headers[-1]):
            assert sent["authorization"] == "Bearer mine"
            assert sent.get("x-team") == headers.get("X-Team")
            assert sent.get("openai-organization") == headers.get("openai-organization")
            assert not {"x-gateway", "openai-project"} & sent.keys()


@pytest.mark.parametrize(
    "url",
    ["http://a/v1,b:8000/v1", "http://a/v1,me:hunter22@b/v1", "http://a/v1;x,ftp://me:hunter22@b"],
)
def test_a_comma_is_no_part_of_a_url(url: str) -> None:
    with pytest.raises(ConfigError, match="start each with http://") as caught:
        clients(url)
    assert "hunter22" not in str(caught.value)
    assert clients("http://me:a,b@h/v1").endpoint.base_url == "http://h/v1"


@pytest.mark.parametrize(
    "url", ["localhost:8000/v1", "", "ftp://h/v1", "http://", "http://h:port/v1", "http:///v1"]
)
def test_urls_that_lead_nowhere(url: str) -> None:
    with pytest.raises(ConfigError, match=r"http://localhost:8000/v1"):
        clients(url)


def test_a_bad_url_shows_no_password() -> None:
    with pytest.raises(ConfigError) as caught:
        clients("ftp://me:hunter22@host/v1")
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-12 34", "sk-1234\n", "sk-schlüssel"])
def test_keys_that_cannot_be_sent(key: str) -> None:
    with pytest.raises(ConfigError, match="API key") as caught:
        clients("http://h/v1", key)
    assert key.strip() not in str(caught.value)


def test_a_query_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="query") as caught:
        clients("http://h/v1?token=abcdefgh")
    assert "abcdefgh" not in str(caught.value)


def test_the_endpoint_hides_the_user() -> None:
    endpoint = Clients(
        "m", "https://me:hunter22@host:1/v1", "", {"X-Key": "sk-123456"}, 60.0
    ).endpoint
    assert str(endpoint) == "m at https://host:1/v1"
    assert endpoint.quote("hunter22 sk-123456 EMPTY") == "*** *** EMPTY"
    assert "sk-123456" not in repr(endpoint)


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer  ", "Basic ", "Token ", ""])
def test_a_key_in_a_header_is_hidden_with_and_without_its_scheme(scheme: str) -> None:
    headers = {"Authorization": f"{scheme}sk-abcdefgh"}
    endpoint = Clients("m", "http://h/v1", None, headers, 60.0).endpoint
    said = endpoint.quote(f"no such key sk-abcdefgh (header: {scheme}sk-abcdefgh)")
    assert "abcdefgh" not in said
    assert said.count("***") == 2
    assert endpoint.cause(ValueError("sk-abcdefgh")) is None


def test_a_forked_process_has_connections_of_its_own(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes on one connection would read each other's replies."""
    holder = clients(server.url)
    before = run_sync(holder.get())
    assert run_sync(holder.get()) is before
    monkeypatch.setattr("memagent.threads.os.getpid", lambda: -1)
    after = run_sync(holder.get())
    assert after is not before
    assert run_sync(holder.get()) is after
    assert not before.is_closed(), "it is the parent's"
    run_sync(holder.aclose())


# --- what the environment says


@pytest.fixture
def proxied(monkeypatch: pytest.MonkeyPatch, nobody: str) -> str:
    """A proxy that is not there."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name.lower(), raising=False)
        monkeypatch.setenv(name, "" if name == "NO_PROXY" else nobody.removesuffix("/v1"))
    return nobody


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_server_on_this_machine_needs_no_proxy(
    server: Script, proxied: str, host: str
) -> None:
    url = server.url.replace("127.0.0.1", host)
    model = open_model("vllm:tiny", base_url=url)
    server.be_vllm()
    assert await model.window() == 2048
    assert (await model.counter()).name.startswith("server:")
    await model.aclose()


async def test_other_servers_are_reached_through_the_proxy(proxied: str) -> None:
    holder = clients("http://memagent.invalid/v1")
    with pytest.raises(Exception, match="Connection error") as caught:
        await use(holder)
    assert "Connect" in repr(caught.value.__cause__)
    await holder.aclose()


async def test_a_proxy_that_is_not_there_is_named(
    proxied: str, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = urlsplit(nobody).netloc
    monkeypatch.setenv("HTTP_PROXY", f"http://me:hunter22@{proxy}")
    said: list[str] = []
    for url in ("http://memagent.invalid/v1", "http://direct.invalid/v1", nobody):
        monkeypatch.setenv("NO_PROXY", "direct.invalid")
        model = OpenAIModel("m", base_url=url)
        with pytest.raises(ConnectionFailed) as caught:
            await model.window()
        said.append(str(caught.value))
        await model.aclose()
    through, *direct = said
    assert f"through the proxy {proxy!r}" in through
    assert "NO_PROXY=memagent.invalid" in through
    assert "hunter22" not in through
    assert not any("proxy" in words for words in direct)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ALL_PROXY", "socks5://me:hunter22@localhost:1080", r"ALL_PROXY='localhost:1080'.*httpx\[socks\]"),
        ("HTTPS_PROXY", "gopher://localhost:70", "HTTPS_PROXY='gopher://localhost:70'"),
        ("SSL_CERT_FILE", "/nowhere/ca.pem", "SSL_CERT_FILE='/nowhere/ca.pem': .*No such file"),
    ],
)  # fmt: skip
async def test_an_environment_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    for other in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(other, raising=False)
        monkeypatch.delenv(other.lower(), raising=False)
    monkeypatch.setenv(name, value)
    model = open_model("openai:m", base_url="https://memagent.invalid/v1", tokenizer="bytes")
    for ask in (model.window, model.counter):
        with pytest.raises(ConfigError, match=words) as caught:
            await ask()
        assert "hunter22" not in "".join(traceback.format_exception(caught.value))
    await model.aclose()


async def test_a_bad_certificate_file_is_nothing_to_a_server_on_this_machine(
    server: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    holder = clients(server.url)
    await use(holder)
    await holder.aclose()


def test_a_user_in_the_url_and_a_key_are_one_too_many() -> None:
    with pytest.raises(
        ConfigError, match=r"@host has a user name.*api_key=.*remove the user"
    ) as no:
        clients("https://me:hunter22@host/v1", "sk-123456")
    assert "hunter22" not in str(no.value)
    assert "sk-123456" not in str(no.value)


@pytest.mark.parametrize("name", ["X Team", "", "X:Team", "Über", " X-Team"])
def test_names_that_no_header_has(name: str) -> None:
    with pytest.raises(ConfigError, match="can't be a header's name"):
        Clients("m", "http://h/v1", None, {name: "blue"}, 60.0)


@pytest.mark.parametrize("value", ["two\nlines-secret", "naïve-secret", " secret", "secret ", 5])
def test_headers_that_cannot_be_sent(value: str) -> None:
    with pytest.raises(ConfigError, match="'X-Key'") as caught:
        Clients("m", "http://h/v1", None, {"X-Key": value}, 60.0)
    assert "secret" not in str(caught.value)
