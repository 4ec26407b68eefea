"""The openai client as memagent uses it: one for each event loop, secrets kept out of sight."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
import threading
import weakref
from collections.abc import AsyncGenerator, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from memagent.errors import ConfigError, RequestRefused
from memagent.models.openai_errors import Endpoint, is_loopback
from memagent.models.sharing import PerLoop
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
_LOSE_BODY = {HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND, HTTPStatus.SEE_OTHER}
SECRET_CHARS = 6
"""Shorter texts are no secrets, and blanking them out would garble messages."""


class Clients:
    """Connections to one server of a model: a client for each event loop that calls, and one for worker threads.

    A user and password in the URL are sent as basic authorisation and appear nowhere else: the HTTP
    library logs URLs.

    Raises:
        ConfigError: the URL or the key cannot be sent.
    """

    def __init__(
        self,
        name: str,
        base_url: str,
        api_key: str | None,
        headers: Mapping[str, str],
        timeout: float,
    ) -> None:
        parts = _check_url(base_url)
        if api_key and parts.username is not None:
            raise ConfigError(
                f"the base URL ...@{parts.hostname} names a user, and there is an API key too (api_key=, "
                f"MEMAGENT_API_KEY or OPENAI_API_KEY); one request can carry one of them: take the user out of the "
                f"URL, or do without the key (api_key='')"
            )
        self._api_key = api_key or NO_KEY
        _check_sendable(
            self._api_key, f"the API key ({len(self._api_key)} characters", blanks=False
        )
        for header, value in headers.items():
            _check_sendable(header + value, f"the header {header!r} (its value", blanks=True)
        self._headers = {**_basic_authorisation(parts), **headers}
        secrets = {api_key or "", parts.password or "", unquote(parts.password or "")}
        for value in self._headers.values():
            # A server may echo the credentials with or without their scheme ("Bearer", "Basic").
            secrets |= {value.strip(), value.strip().partition(" ")[2].strip()}
        # The longest first: one that holds another is blanked out whole.
        secrets = sorted((s for s in secrets if len(s) >= SECRET_CHARS), key=len, reverse=True)
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self.endpoint = Endpoint(name, url, timeout, tuple(secrets))
        """The server, as errors may name it. It may move to another base URL."""
        self._loops = PerLoop(_Slot)
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._blocking: openai.OpenAI | None = None

    async def get(self) -> openai.AsyncOpenAI:
        """The running loop's client."""
        slot = self._loops.get()
        async with slot.lock:
            client = slot.client
            if client is None:
                # Importing openai takes half a second, reading the certificates some more.
                client = slot.client = await asyncio.to_thread(self._connect, blocking=False)
                slot.closer = _closing(client)
                await anext(slot.closer)
        client.base_url = self.endpoint.base_url  # it may have moved
        return client

    def timeout(self, seconds: float) -> Any:
        """Time for a request as the client takes it, with less for the connection."""
        import openai

        return openai.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))

    def blocking(self) -> openai.OpenAI:
        """The client for worker threads, which all of them share."""
        if self._pid != os.getpid():
            # A fork: the connections are the parent's, and so may be the lock.
            self._pid, self._mutex, self._blocking = os.getpid(), threading.Lock(), None
        with self._mutex:
            client = self._blocking
            if client is None:
                client = self._blocking = self._connect(blocking=True)
            return client

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
                closing = asyncio.run_coroutine_threadsafe(_end(slot.closer), loop)
                # That loop may be blocked, by whoever waits for this: it then closes when it can.
                await asyncio.wait([asyncio.wrap_future(closing)], timeout=CLOSE_SECONDS)

    def _connect(self, *, blocking: bool) -> Any:
        """A client of openai's. A server on this machine is reached directly, whatever proxy is set."""
        import openai
        from openai import DEFAULT_CONNECTION_LIMITS as LIMITS

        options: dict[str, Any] = {
            # The client's own limits, of whichever HTTP library it uses, but for the time.
            "limits": type(LIMITS)(
                max_connections=LIMITS.max_connections,
                max_keepalive_connections=LIMITS.max_keepalive_connections,
                keepalive_expiry=KEEP_SECONDS,
            )
        }
        parts = urlsplit(self.endpoint.base_url)
        if is_loopback(parts.hostname or ""):
            options["trust_env"] = False
            if parts.scheme == "https":
                options["verify"] = ssl.create_default_context()  # which reads SSL_CERT_FILE
        kind, transport = openai.AsyncOpenAI, openai.DefaultAsyncHttpxClient
        if blocking:
            kind, transport = openai.OpenAI, openai.DefaultHttpxClient
        else:
            options["event_hooks"] = {"response": [self._refuse_redirect]}
        try:
            http: Any = transport(**options)
        except (ImportError, OSError, ValueError) as error:
            raise ConfigError(_explain(error)) from None
        client: Any = kind(
            http_client=http,
            base_url=self.endpoint.base_url,
            api_key=self._api_key,
            default_headers=self._headers,
            timeout=self.timeout(self.endpoint.timeout),
            max_retries=0,
        )
        if blocking:  # asynchronous ones end with their loop
            weakref.finalize(client, http.close)
        return client

    async def _refuse_redirect(self, response: Any) -> None:
        """Stops where the HTTP library would follow with a GET, and lose the request's body."""
        if response.request.method == "POST" and response.status_code in _LOSE_BODY:
            parts = urlsplit(str(response.url.join(response.headers.get("location", ""))))
            host = parts.netloc.rpartition("@")[2]
            to = urlunsplit(parts._replace(netloc=host, query="", fragment=""))
            base = to.removesuffix("/").removesuffix("/chat/completions")
            raise RequestRefused(
                f"{self.endpoint}: the server redirects ({response.status_code}) to {to!r}, which would lose the "
                f"request; give {base!r} as the base URL"
            )


def speaks_tls(url: str) -> bool:
    """Whether a server answers in TLS at an http:// URL. Blocks."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname is None:
        return False
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((parts.hostname, parts.port or 80), CLOSE_SECONDS) as plain:
            context.wrap_socket(plain, server_hostname=parts.hostname).close()
    except OSError:
        return False
    return True


def _explain(error: Exception) -> str:
    """What is wrong with the environment, where no HTTP client can be made with it."""
    certificates = isinstance(error, OSError)
    names = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY")
    if certificates:
        names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    found = [(n, os.environ[n]) for n in (*names, *map(str.lower, names)) if os.environ.get(n)]
    if isinstance(error, ImportError):
        found = [(name, value) for name, value in found if value.lower().startswith("socks")]
    values = [f"{name}={value.rpartition('@')[2]!r}" for name, value in found]
    where = ", ".join(values[:1] if certificates else values) or "the system's settings"
    if certificates:
        return f"the certificates cannot be read ({where}: {error}); correct or unset that variable"
    if isinstance(error, ImportError):
        return (
            f"the proxy is a SOCKS one ({where}), which takes the extra 'socks' of httpx: pip install "
            f"'httpx[socks]', or unset that variable"
        )
    return f"the proxy cannot be used ({where}); give one such as http://host:3128, or unset that variable"


class _Slot:
    """One loop's client."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.client: openai.AsyncOpenAI | None = None
        self.closer: AsyncGenerator[None] | None = None


async def _closing(client: openai.AsyncOpenAI) -> AsyncGenerator[None]:
    """Closes the client when it ends: a loop that shuts down, as `asyncio.run` does, ends all its generators."""
    try:
        yield
    finally:
        await client.close()


async def _end(closer: AsyncGenerator[None]) -> None:
    await closer.aclose()


def _check_url(base_url: str) -> SplitResult:
    safe = base_url.rpartition("@")[2]
    try:
        parts = urlsplit(base_url.strip())
        _ = parts.port
    except ValueError:
        raise ConfigError(
            f"the base URL ...{safe!r} is not a URL (its host or port cannot be read); {_EXAMPLE}"
        ) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"the base URL {safe!r} does not start with http:// or https:// and a host; {_EXAMPLE}"
        )
    if parts.query or parts.fragment:
        raise ConfigError(
            f"the base URL {safe.partition('?')[0].partition('#')[0]!r} goes on with a query or fragment, "
            f"to which no path can be added; leave that out (keys go into api_key=)"
        )
    if "," in parts.path:
        raise ConfigError(
            f"the base URL that ends in {safe!r} has a comma in its path; begin each of several servers with "
            f"http:// or https://"
        )
    return parts


_EXAMPLE = "give one such as 'http://localhost:8000/v1'"


def _check_sendable(text: str, what: str, *, blanks: bool) -> None:
    """Refuses a key or header, which the message does not show."""
    if not (text.isascii() and text.isprintable()) or (" " in text and not blanks):
        raise ConfigError(
            f"{what}, not shown) holds {'' if blanks else 'a blank, '}a line end or a character outside ASCII, "
            f"which cannot be sent; copy it again"
        )


def _basic_authorisation(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode("ascii")}
