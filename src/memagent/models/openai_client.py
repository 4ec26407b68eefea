"""The openai client as memagent uses it: one per event loop, secrets never shown."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
import ssl
import weakref
from collections.abc import AsyncGenerator, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urljoin, urlsplit, urlunsplit

from memagent.errors import BadResponse, ConfigError, RequestRefused
from memagent.models.openai_errors import Endpoint, is_loopback
from memagent.models.sharing import PerLoop

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
BODY_BYTES = 64 * 1024**2
"""Maximum bytes of a reply. A million token ids have 8 MB, the log-probabilities of 128K tokens about 30 MB."""
SECRET_CHARS = 6
"""Shorter texts aren't secrets, and redacting them would garble messages."""


class Clients:
    """Connections to one server of a model: a client per event loop.

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
        _check_sendable(self._api_key, f"the API key ({len(str(self._api_key))} characters")
        for header, value in headers.items():
            if not _NAME.fullmatch(header):
                raise ConfigError(f"{header!r} can't be a header's name: give one such as 'X-Team'")
            _check_sendable(value, f"the header {header!r} (its value", around=" around it")
        bearer = {"Authorization": f"Bearer {self._api_key}"}
        self._headers = {**bearer, **_basic_authorisation(parts), **headers}
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

    async def get(self) -> openai.AsyncOpenAI:
        """Returns the running loop's client."""
        slot, loop = self._loops.get(), asyncio.get_running_loop()
        async with slot.lock:
            client = slot.client
            if client is None:
                # Importing openai takes half a second, reading the certificates even longer.
                client = slot.client = await asyncio.to_thread(self._connect, loop)
                slot.closer = _closing(client)
                await anext(slot.closer)
        client.base_url = self.endpoint.base_url  # the base URL may have changed
        return client

    def timeout(self, seconds: float) -> Any:
        """Converts a timeout to the client's form, with less time for connecting."""
        import openai

        return openai.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))

    async def aclose(self) -> None:
        """Closes the clients of all running loops."""
        current_loop = asyncio.get_running_loop()
        for loop, slot in self._loops.take_all():
            if slot.client is None or loop.is_closed():
                continue
            if loop is current_loop:
                await slot.client.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(slot.client.close(), loop)
                # Our caller may be blocking that loop: then it closes the client later.
                await asyncio.wait([asyncio.wrap_future(closing)], timeout=CLOSE_SECONDS)

    def transport(self) -> dict[str, Any]:
        """Returns an HTTP client's options. A server on this machine is reached directly, whatever proxy is set."""
        hooks = {"response": [partial(_refuse_redirect, self.endpoint)]}
        options: dict[str, Any] = {"follow_redirects": True, "event_hooks": hooks}
        parts = urlsplit(self.endpoint.base_url)
        if is_loopback(parts.hostname or ""):
            options["trust_env"] = False
            if parts.scheme == "https":
                options["verify"] = ssl.create_default_context()  # which reads SSL_CERT_FILE
        return options

    def _connect(self, loop: asyncio.AbstractEventLoop) -> openai.AsyncOpenAI:
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
        options["event_hooks"]["response"].append(partial(_limit_size, self.endpoint))
        try:
            http = openai.DefaultAsyncHttpxClient(**options)
        except (ImportError, OSError, ValueError) as error:
            raise ConfigError(_explain(error)) from None
        # The client would add headers of the environment, whatever server this is.
        lines = os.environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
        names = ["OpenAI-Organization", "OpenAI-Project", *(n.partition(":")[0] for n in lines)]
        omissions: dict[str, Any] = {name.strip(): openai.Omit() for name in names}
        client = openai.AsyncOpenAI(
            http_client=http,
            base_url=self.endpoint.base_url,
            api_key=self._api_key,
            default_headers=omissions | self._headers,
            timeout=self.timeout(self.endpoint.timeout),
            max_retries=0,
        )
        weakref.finalize(  # closes the connections of a client that nobody closed
            client,
            lambda: loop.is_running() and asyncio.run_coroutine_threadsafe(http.aclose(), loop),
        ).atexit = False
        return client


async def _refuse_redirect(endpoint: Endpoint, response: Any) -> None:
    """Stops at redirects that would take a request and its headers to another server, or lose a POST's body."""
    if not response.has_redirect_location:
        return
    prefix = f"{endpoint}: the server redirects ({response.status_code}) to"
    location: str = response.headers["location"]
    try:
        parts = urlsplit(urljoin(str(response.url), location))
        other_origin = _origin(parts) != _origin(urlsplit(str(response.url)))
    except ValueError:
        raise RequestRefused(
            f"{prefix} {endpoint.quote(location)!r}, which is not a URL; give the server's own as the base URL"
        ) from None
    if other_origin or (response.request.method == "POST" and response.status_code in _LOSE_BODY):
        host = parts.netloc.rpartition("@")[2]
        target = urlunsplit(parts._replace(netloc=host, query="", fragment=""))
        base = re.sub("(/chat/completions|/responses|/models)?/*$", "", target)
        reason = "is another server" if other_origin else "would lose the request"
        raise RequestRefused(f"{prefix} {target!r}, which {reason}; give {base!r} as the base URL")


def _origin(parts: SplitResult) -> tuple[str, str | None, int]:
    return parts.scheme, parts.hostname, parts.port or {"https": 443}.get(parts.scheme, 80)


async def _limit_size(endpoint: Endpoint, response: Any) -> None:
    """Stops reading a body that is too large when unpacked."""
    read = response.aiter_bytes

    async def pieces(size: int | None = None) -> AsyncGenerator[bytes]:
        total = 0
        async for piece in read(size):
            total += len(piece)
            if total > BODY_BYTES:
                failure = BadResponse(
                    f"{endpoint}: the reply has more than {BODY_BYTES:,} bytes; see the server's log"
                )
                failure.retryable = False  # it would be paid for again
                raise failure
            yield piece

    response.aiter_bytes = pieces


def speaks_tls(url: str) -> bool:
    """Returns whether a server speaks TLS at an http:// URL. Blocks."""
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
    """Explains which setting of the environment keeps an HTTP client from being created."""
    certificates = isinstance(error, OSError)
    names = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY")
    if certificates:
        names = ("SSL_CERT_FILE", "SSL_CERT_DIR")
    pairs = [(n, os.environ[n]) for n in (*names, *map(str.lower, names)) if os.environ.get(n)]
    if isinstance(error, ImportError):
        pairs = [(name, value) for name, value in pairs if value.lower().startswith("socks")]
    values = [f"{name}={value.rpartition('@')[2]!r}" for name, value in pairs]
    source = ", ".join(values[:1] if certificates else values) or "the system's settings"
    if certificates:
        return f"the certificates cannot be read ({source}: {error}); fix or unset that variable"
    if isinstance(error, ImportError):
        return (
            f"the proxy is a SOCKS proxy ({source}), which needs the extra 'socks' of httpx: pip install "
            f"'httpx[socks]', or unset that variable"
        )
    return f"the proxy cannot be used ({source}); give one such as http://host:3128, or unset that variable"


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


def _check_sendable(text: object, subject: str, *, around: str = "") -> None:
    """Rejects an invalid key or header, without showing it; with `around` it may have blanks inside."""
    form = r"([!-~]([ -~]*[!-~])?)?" if around else r"[!-~]*"
    if not isinstance(text, str) or re.fullmatch(form, text) is None:
        raise ConfigError(
            f"{subject}, not shown) must be one line of ASCII text without blanks{around}: copy it again"
        )


def _basic_authorisation(parts: SplitResult) -> dict[str, str]:
    if parts.username is None:
        return {}
    pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return {"Authorization": "Basic " + base64.b64encode(pair.encode()).decode("ascii")}
