"""The openai client as memagent uses it: one per event loop, secrets never shown."""

from __future__ import annotations

import asyncio
import base64
import os
import re
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
"""Sent if a server needs no key: the client requires one."""
CLOSE_SECONDS = 2.0
"""Seconds to wait for another event loop's connections to close."""
CONNECT_SECONDS = 10.0
"""Seconds: a running server accepts a connection within this time, even across the world."""
KEEP_SECONDS = 2.0
"""Seconds that an idle connection is kept. Servers close theirs after 5 s (uvicorn's default, as in vLLM and
SGLang), and so does the HTTP library by default: a request sent at that moment would be lost."""
_LOSE_BODY = {HTTPStatus.MOVED_PERMANENTLY, HTTPStatus.FOUND, HTTPStatus.SEE_OTHER}
SECRET_CHARS = 6
"""Shorter texts aren't secrets, and redacting them would garble messages."""


class Clients:
    """Connections to one server of a model: a client per calling event loop, and one for worker threads.

    A user and password in the URL are sent as basic authentication and appear nowhere else: the HTTP
    library logs URLs.

    Raises:
        ConfigError: the URL or the key is invalid.
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
                f"the base URL ...@{parts.hostname} has a user name, but there is an API key too (api_key=, "
                f"MEMAGENT_API_KEY or OPENAI_API_KEY), and a request can carry only one: remove the user from the "
                f"URL, or switch the key off (api_key='')"
            )
        self._api_key = api_key or NO_KEY
        _check_sendable(self._api_key, f"the API key ({len(self._api_key)} characters")
        for header, value in headers.items():
            if not _NAME.fullmatch(header):
                raise ConfigError(f"{header!r} can't be a header's name: give one such as 'X-Team'")
            _check_sendable(value, f"the header {header!r} (its value", around=" around it")
        self._headers = {**_basic_authorisation(parts), **headers}
        secrets = {api_key or "", parts.password or "", unquote(parts.password or "")}
        for value in self._headers.values():
            # A server may echo the credentials with or without their scheme ("Bearer", "Basic").
            secrets |= {value.strip(), value.strip().partition(" ")[2].strip()}
        # Longest first, so that a secret that contains another is redacted whole.
        secrets = sorted((s for s in secrets if len(s) >= SECRET_CHARS), key=len, reverse=True)
        url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self.endpoint = Endpoint(name, url, timeout, tuple(secrets))
        """The server, as named in errors. Its base URL may change."""
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
                # Importing openai takes half a second, reading the certificates even longer.
                client = slot.client = await asyncio.to_thread(self._connect, blocking=False)
                slot.closer = _closing(client)
                await anext(slot.closer)
        client.base_url = self.endpoint.base_url  # it may have moved
        return client

    def timeout(self, seconds: float) -> Any:
        """A request's timeout in the client's form, with less time for connecting."""
        import openai

        return openai.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))

    def blocking(self) -> openai.OpenAI:
        """The client shared by all worker threads."""
        if self._pid != os.getpid():
            # After a fork, the connections belong to the parent, and it may hold the lock.
            self._pid, self._mutex, self._blocking = os.getpid(), threading.Lock(), None
        with self._mutex:
            client = self._blocking
            if client is None:
                client = self._blocking = self._connect(blocking=True)
            return client

    async def aclose(self) -> None:
        """Closes the clients of all running loops."""
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
                # That loop may be blocked by our caller: then it closes when it can.
                await asyncio.wait([asyncio.wrap_future(closing)], timeout=CLOSE_SECONDS)

    def transport(self) -> dict[str, Any]:
        """Options of an HTTP client. A server on this machine is reached directly, whatever proxy is set."""
        hooks = {"response": [self._refuse_redirect]}
        options: dict[str, Any] = {"follow_redirects": True, "event_hooks": hooks}
        parts = urlsplit(self.endpoint.base_url)
        if is_loopback(parts.hostname or ""):
            options["trust_env"] = False
            if parts.scheme == "https":
                options["verify"] = ssl.create_default_context()  # which reads SSL_CERT_FILE
        return options

    def _connect(self, *, blocking: bool) -> Any:
        """An openai client."""
        import openai
        from openai import DEFAULT_CONNECTION_LIMITS as LIMITS

        options: dict[str, Any] = self.transport() | {
            # The client's own limits, of whichever HTTP library it uses, except for the time.
            "limits": type(LIMITS)(
                max_connections=LIMITS.max_connections,
                max_keepalive_connections=LIMITS.max_keepalive_connections,
                keepalive_expiry=KEEP_SECONDS,
            )
        }
        kind, transport = openai.AsyncOpenAI, openai.DefaultAsyncHttpxClient
        if blocking:
            kind, transport = openai.OpenAI, openai.DefaultHttpxClient
            del options["event_hooks"]
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
        """Stops at redirects that the HTTP library would follow with a GET, losing the request's body."""
        if response.request.method == "POST" and response.status_code in _LOSE_BODY:
            parts = urlsplit(str(response.url.join(response.headers.get("location", ""))))
            host = parts.netloc.rpartition("@")[2]
            to = urlunsplit(parts._replace(netloc=host, query="", fragment=""))
            base = to.removesuffix("/").removesuffix("/chat/completions").removesuffix("/responses")
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
    """What is wrong with the environment if no HTTP client can be created."""
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
        return f"the certificates cannot be read ({where}: {error}); fix or unset that variable"
    if isinstance(error, ImportError):
        return (
            f"the proxy is a SOCKS proxy ({where}), which needs the extra 'socks' of httpx: pip install "
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
    """Closes the client when the loop shuts down: `asyncio.run`, for one, then ends all its generators."""
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
            f"the base URL {safe.partition('?')[0].partition('#')[0]!r} is followed by a query or fragment, "
            f"to which no path can be added; remove it (keys go into api_key=)"
        )
    if "," in parts.path:
        raise ConfigError(
            f"the base URL that ends in {safe!r} has a comma in its path; if it lists several servers, start each with "
            f"http:// or https://"
        )
    return parts


_EXAMPLE = "give one such as 'http://localhost:8000/v1'"


_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Names of headers: `token` of RFC 9110."""


def _check_sendable(text: object, what: str, *, around: str = "") -> None:
    """Rejects an invalid key or header, without showing it; with `around` it may have blanks inside."""
    form = r"([!-~]([ -~]*[!-~])?)?" if around else r"[!-~]*"
    if not isinstance(text, str) or re.fullmatch(form, text) is None:
        raise ConfigError(
            f"{what}, not shown) must be one line of ASCII text without blanks{around}: copy it again"
        )


def _basic_authorisation(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode("ascii")}
