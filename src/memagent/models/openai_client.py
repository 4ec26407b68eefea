"""The openai client as memagent uses it: one for each event loop, secrets kept out of sight."""

from __future__ import annotations

import asyncio
import base64
import os
import threading
import weakref
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from memagent.errors import ConfigError
from memagent.models.openai_errors import Endpoint
from memagent.models.perloop import PerLoop
from memagent.threads import in_thread

if TYPE_CHECKING:
    import openai

NO_KEY = "EMPTY"
"""Sent where a server wants no key: the client insists on one."""
CLOSE_SECONDS = 2.0
"""How long the end of another event loop's connections is waited for."""
CONNECT_SECONDS = 10.0
"""A server that is up accepts a connection within this, also across the world."""
KEEP_SECONDS = 2.0
"""How long an idle connection is kept. The servers close theirs after 5 s (uvicorn's default, which vLLM and
SGLang have) and the HTTP library keeps them as long: a request that is sent just then is lost."""
SECRET_CHARS = 6
"""Shorter texts are no secrets, and blanking them out would garble messages."""


class Clients:
    """Connections to one server: a client for each event loop that calls.

    A user and password in the URL are sent as basic authorisation and appear nowhere else: the HTTP
    library logs URLs.

    Raises:
        ConfigError: the URL or the key cannot be sent.
    """

    def __init__(
        self, base_url: str, api_key: str | None, headers: Mapping[str, str], timeout: float
    ) -> None:
        parts = _checked_url(base_url)
        self._url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self._api_key = _checked_key(api_key)
        self._headers = {**_basic_authorisation(parts), **headers}
        self._timeout = timeout
        secrets = {api_key or "", parts.password or "", unquote(parts.password or "")}
        for value in self._headers.values():
            # A server may echo the credentials with or without their scheme ("Bearer", "Basic").
            secrets |= {value.strip(), value.strip().partition(" ")[2].strip()}
        # The longest first: one that holds another is blanked out whole.
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._loops = PerLoop(_Slot)
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._blocking: openai.OpenAI | None = None

    def endpoint(self, name: str) -> Endpoint:
        """What errors may say about the server."""
        return Endpoint(
            name=name,
            base_url=self._url,
            timeout=self._timeout,
            secrets=tuple(s for s in self._secrets if len(s) >= SECRET_CHARS),
        )

    async def get(self) -> openai.AsyncOpenAI:
        """The running loop's client."""
        slot = self._loops.get()
        async with slot.lock:
            if slot.client is None:
                # Importing openai takes half a second, reading the certificates some more.
                slot.client = await asyncio.to_thread(self._connect)
                slot.closer = _closing(slot.client)
                await anext(slot.closer)
        return slot.client

    def blocking(self) -> openai.OpenAI:
        """The client for worker threads, which all of them share."""
        if self._pid != os.getpid():
            # A fork: the connections are the parent's, and so may be the lock.
            self._pid, self._mutex, self._blocking = os.getpid(), threading.Lock(), None
        with self._mutex:
            if self._blocking is None:
                import openai

                http = openai.DefaultHttpxClient(limits=_limits())
                self._blocking = openai.OpenAI(http_client=http, **self._options())
                weakref.finalize(self._blocking, http.close)
            return self._blocking

    async def aclose(self) -> None:
        """Closes the clients of all loops that still run."""
        with self._mutex:
            blocking, self._blocking = self._blocking, None
        if blocking is not None:
            await in_thread(blocking.close)
        here = asyncio.get_running_loop()
        for loop, slot in self._loops.take_all():
            if slot.closer is None or loop.is_closed():
                continue
            if loop is here:
                await slot.closer.aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(_finish(slot.closer), loop)
                # That loop may be blocked, by whoever waits for this: it then closes when it can.
                await asyncio.wait([asyncio.wrap_future(closing)], timeout=CLOSE_SECONDS)

    def _connect(self) -> openai.AsyncOpenAI:
        import openai

        return openai.AsyncOpenAI(
            http_client=openai.DefaultAsyncHttpxClient(limits=_limits()), **self._options()
        )

    def _options(self) -> dict[str, Any]:
        import openai

        return {
            "base_url": self._url,
            "api_key": self._api_key,
            "default_headers": self._headers,
            "timeout": openai.Timeout(self._timeout, connect=min(CONNECT_SECONDS, self._timeout)),
            "max_retries": 0,
        }


class _Slot:
    """One loop's client."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.client: openai.AsyncOpenAI | None = None
        self.closer: AsyncGenerator[None] | None = None


async def _closing(client: openai.AsyncOpenAI) -> AsyncGenerator[None]:
    """Closes the client when it ends.

    A loop that shuts down ends all generators that it has started, so `asyncio.run` leaves no open
    connection behind.
    """
    try:
        yield
    finally:
        await client.close()


async def _finish(closer: AsyncGenerator[None]) -> None:
    await closer.aclose()


def _limits() -> Any:
    """The client's own limits, of whichever HTTP library it uses, but for the time."""
    from openai import DEFAULT_CONNECTION_LIMITS as LIMITS

    return type(LIMITS)(
        max_connections=LIMITS.max_connections,
        max_keepalive_connections=LIMITS.max_keepalive_connections,
        keepalive_expiry=KEEP_SECONDS,
    )


def _checked_url(base_url: str) -> SplitResult:
    shown = base_url.rpartition("@")[2]
    try:
        parts = urlsplit(base_url.strip())
        _ = parts.port
    except ValueError:
        raise ConfigError(
            f"the base URL ...{shown!r} is no URL (its host or port cannot be read); {_EXAMPLE}"
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"the base URL {shown!r} does not start with http:// or https:// and a host; {_EXAMPLE}"
        )
    if parts.query or parts.fragment:
        raise ConfigError(
            f"the base URL {shown.partition('?')[0].partition('#')[0]!r} goes on with a query or fragment, "
            f"to which no path can be added; leave that out (keys go into api_key=)"
        )
    if "," in parts.path:
        raise ConfigError(
            f"the base URL that ends in {shown!r} has a comma in its path; begin each of several servers with "
            f"http:// or https://"
        )
    return parts


_EXAMPLE = "give one such as 'http://localhost:8000/v1'"


def _checked_key(api_key: str | None) -> str:
    if not api_key:
        return NO_KEY
    if not (api_key.isascii() and api_key.isprintable()) or " " in api_key:
        raise ConfigError(
            f"the API key ({len(api_key)} characters, not shown) holds a blank, a line end or a "
            f"character outside ASCII, which cannot be sent; copy it again"
        )
    return api_key


def _basic_authorisation(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode("ascii")}
