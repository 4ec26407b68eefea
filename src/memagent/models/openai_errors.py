"""Translates errors of the openai client into memagent's."""

from __future__ import annotations

import json
import math
import re
import ssl
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import mktime_tz, parsedate_tz
from http import HTTPStatus
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ConnectionFailed,
    ContextOverflow,
    ModelError,
    ModelNotFound,
    RequestRefused,
    RequestTimeout,
    ServerBusy,
    ServerFailed,
    TLSFailed,
)
from memagent.texts import repair_surrogates

if TYPE_CHECKING:
    import openai

CLIP = 500
"""Characters kept of a server's message: enough for every message seen, too few for a page of HTML."""
SERVED_SHOWN = 8
"""Served models named in an error; the rest are only counted."""

_OVERFLOW_CODES = {"context_length_exceeded", "exceed_context_size_error"}
_OVERFLOW = re.compile(
    r"context[ _-]?(length|size|window)|max_model_len|maximum (input|sequence) length"
    r"|(prompt|input)\b.{0,40}\btoo (long|many tokens)|tokens.{0,60}\bmust be <=",
    re.IGNORECASE | re.DOTALL,
)
"""How vLLM, SGLang, llama-server, TGI and OpenAI say that a request exceeds the window."""
_NO_MODEL = re.compile(
    r"\bmodel\b.{0,200}?\b(does not exist|not found|is not (served|available))|(unknown|invalid) model\b",
    re.IGNORECASE | re.DOTALL,
)
_WANTS_TLS = re.compile(r"HTTP request\b.{0,20}\bto (an )?HTTPS", re.IGNORECASE)
"""How nginx and Go's servers reject plain HTTP on a TLS port."""
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


@dataclass(frozen=True)
class Endpoint:
    """A model and its server, as named in errors."""

    name: str
    """The model as the user named it: `vllm:Qwen/Qwen3-4B`."""
    base_url: str
    """Without user, password and query."""
    timeout: float
    """A request's timeout in seconds."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Texts that messages must not contain, even if a server echoes them."""

    def __str__(self) -> str:
        return f"{self.name} at {self.base_url}"

    def quote(self, text: str) -> str:
        """Puts a server's message on one line, without secrets, at most 500 characters."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        text = _UNPRINTABLE.sub(" ", repair_surrogates(text)).strip()
        return text if len(text) <= CLIP else text[: CLIP - 1] + "…"

    def cause(self, error: BaseException) -> BaseException | None:
        """Returns the original error, unless a traceback would show a secret that the server echoed."""
        link: BaseException | None = error
        while link is not None:
            if any(secret in str(link) for secret in self.secrets):
                return None
            link = link.__cause__
        return error


def server_message(body: object) -> str:
    """Finds the message in an error body: `error.message`, flat `message`, `detail`, or all of it."""
    if body is None:
        return ""
    if isinstance(body, str):
        return body
    if isinstance(body, Mapping):
        fields = cast("Mapping[str, object]", body)
        for key in ("error", "message", "detail"):
            if fields.get(key):
                return server_message(fields[key])
    return json.dumps(body, ensure_ascii=False, default=str)


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Returns the seconds that the server asks to wait: `Retry-After` in (fractional) seconds or as an HTTP date.

    A date is compared with `now` (seconds since the epoch; default: the clock).
    """
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "")
        try:
            seconds = float(value) / scale
        except ValueError:
            try:
                date = mktime_tz(cast("Any", parsedate_tz(value)))
            except (OverflowError, TypeError, ValueError):  # not a date, or one that doesn't exist
                continue
            seconds = date - (time.time() if now is None else now)
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def is_refusal(error: openai.APIError) -> bool:
    """Returns whether the server says that the request is invalid."""
    status = getattr(error, "status_code", None)
    return status in (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)


def says_no_model(error: openai.APIError) -> bool:
    """Returns whether the server says that it has no such model (or no such URL: both are 404)."""
    if getattr(error, "status_code", None) == HTTPStatus.NOT_FOUND:
        return True
    words = server_message(error.body)[:CLIP]
    return is_refusal(error) and bool(error.code == "model_not_found" or _NO_MODEL.search(words))


def overflows(error: openai.APIError) -> bool:
    """Returns whether the server says that a request exceeds the window."""
    too_large = getattr(error, "status_code", None) == HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    if not (too_large or is_refusal(error)):
        return False
    # A server may send anything there, lists too.
    if {str(error.code), str(error.type)} & _OVERFLOW_CODES or error.param == "input_tokens":
        return True
    return bool(_OVERFLOW.search(server_message(error.body)[:CLIP]))


def translate(
    error: openai.APIError, endpoint: Endpoint, served: Sequence[str] | None = None
) -> ModelError:
    """Translates an error of the client; `served`: the ids that the server lists, if it was asked."""
    import openai

    if isinstance(error, openai.APIConnectionError):
        return _connection(error, endpoint)
    if not isinstance(error, openai.APIStatusError):
        return BadResponse(f"{endpoint}: the reply cannot be read: {endpoint.quote(str(error))}")
    status = error.status_code
    wait = retry_after(error.response.headers)
    words = endpoint.quote(server_message(error.body)).rstrip(".") or "(no message)"
    message = f"{endpoint}: the server answered {status}: {words}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return AuthenticationFailed(f"{message}; give its key as api_key= or in MEMAGENT_API_KEY")
    if _WANTS_TLS.search(words):
        return TLSFailed(f"{message}; start the base URL with https://")
    if says_no_model(error):
        return ModelNotFound(f"{message}; {where_models_are(endpoint, served)}")
    if overflows(error):
        return ContextOverflow(f"{message}; use a smaller window (--window) or a shorter question")
    if status == HTTPStatus.TOO_MANY_REQUESTS and error.code == "insufficient_quota":
        return RequestRefused(f"{message}; the account's quota is used up, so retrying won't help")
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return ServerBusy(f"{message}; send fewer calls at once", retry_after=wait)
    if status == HTTPStatus.REQUEST_TIMEOUT:
        return RequestTimeout(message, retry_after=wait)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerFailed(f"{message}; see its log", retry_after=wait)
    if status < HTTPStatus.BAD_REQUEST:
        return RequestRefused(f"{message}; the base URL redirects, give the server's own")
    return RequestRefused(f"{message}; the server rejects this request")


def is_loopback(host: str) -> bool:
    """Returns whether a host is this machine, which is reached without a proxy."""
    try:
        address = ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def _connection(error: openai.APIConnectionError, endpoint: Endpoint) -> ModelError:
    import openai

    cause = error.__cause__
    kind = type(cause).__name__
    if isinstance(cause, ModelError):  # raised by our own hook: openai 2 wraps it
        return cause
    if kind == "ConnectError" and (fault := _tls_fault(cause)) is not None:
        return TLSFailed(f"{endpoint}: {endpoint.quote(fault)}")
    if isinstance(error, openai.APITimeoutError) and kind != "ConnectTimeout":
        return RequestTimeout(
            f"{endpoint}: no answer within {endpoint.timeout:g} s; raise timeout=, or send fewer calls at once"
        )
    detail = endpoint.quote(f"{kind}: {cause}" if cause is not None else str(error)).rstrip(": ")
    tls = endpoint.base_url.startswith("https:") and kind == "ConnectTimeout"
    return ConnectionFailed(
        f"{endpoint}: no connection, or it broke before the reply was complete ({detail}); is a server running at "
        f"{endpoint.base_url}{', and does it speak TLS there' if tls else ''}?{_through_proxy(endpoint.base_url)}"
    )


def _through_proxy(url: str) -> str:
    """Says which proxy a request goes through; empty for a server that is reached directly."""
    parts = urlsplit(url)
    proxies, host = getproxies(), parts.hostname or ""
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is None or is_loopback(host) or proxy_bypass(host):
        return ""
    label = proxy.rpartition("@")[2].rpartition("://")[2]
    return f" Requests go through the proxy {label!r}: start it too, or bypass it (NO_PROXY={host})"


def broke(error: openai.APIError) -> bool:
    """Returns whether a server accepted the connection and closed it without a reply."""
    return type(error.__cause__).__name__ in ("ReadError", "RemoteProtocolError")


def _tls_fault(error: BaseException | None) -> str | None:
    """Says what is wrong with TLS; None if the failure may be temporary."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    if error is None or isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the server's certificate is not trusted ({error.verify_message}); set SSL_CERT_FILE to the file of its "
            f"certificate authority"
        )
    if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"):
        return "the server does not speak TLS there; start the base URL with http://"
    return f"no TLS connection ({error})"


def where_models_are(endpoint: Endpoint, served: Sequence[str] | None) -> str:
    """Suggests what to name instead of a missing model."""
    if served:
        suffix = f" and {len(served) - SERVED_SHOWN} more" if len(served) > SERVED_SHOWN else ""
        names = ", ".join(repr(endpoint.quote(name)) for name in served[:SERVED_SHOWN])
        return f"it serves {names}{suffix}"
    hint = "" if endpoint.base_url.rstrip("/").endswith("/v1") else " (most base URLs end in /v1)"
    return f"it lists no models either: is the base URL right?{hint}"
