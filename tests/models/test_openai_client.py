import asyncio
import gc
import threading
import warnings

import pytest
from tests.models.chat_server import Script

from memagent.errors import ConfigError
from memagent.models.openai_client import Clients


def clients(url: str, key: str | None = None) -> Clients:
    return Clients(url, key, {}, 60.0)


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
    endpoint = clients("https://me:hunter22@host:1/v1", "sk-123456").endpoint("m")
    assert str(endpoint) == "m at https://host:1/v1"
    assert endpoint.quote("hunter22 sk-123456 EMPTY") == "*** *** EMPTY"
    assert "sk-123456" not in repr(endpoint)


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer  ", "Basic ", "Token ", ""])
def test_a_key_in_a_header_is_hidden_with_and_without_its_scheme(scheme: str) -> None:
    headers = {"Authorization": f"{scheme}sk-abcdefgh"}
    endpoint = Clients("http://h/v1", None, headers, 60.0).endpoint("m")
    said = endpoint.quote(f"no such key sk-abcdefgh (header: {scheme}sk-abcdefgh)")
    assert "abcdefgh" not in said
    assert said.count("***") == 2
    assert endpoint.leaks(ValueError("sk-abcdefgh"))
