"""The model behind the endpoint: sends requests to its server as bytes, and tells what fits its window."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx
import openai

from memagent.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ModelError,
    RequestTimeout,
    ServerBusy,
    ServerFailed,
    TokenizerError,
)
from memagent.messages import Message, ToolSpec
from memagent.models import ChatModel, OpenAIModel
from memagent.models.base import innermost
from memagent.models.openai_client import CONNECT_SECONDS, KEEP_SECONDS
from memagent.models.openai_errors import Endpoint, overflows, translate
from memagent.models.server import Server
from memagent.tokens.byte_bound import ByteBound
from memagent_engines.ollama import OllamaModel
from memagent_serve.refusals import Refusal

logger = logging.getLogger("memagent.serve")

WINDOW_SECONDS = 30.0
"""Seconds for which the window is cached: a server that came back with another one is noticed within that time."""
UNKNOWN_SECONDS = 5.0
"""Seconds until a server that didn't report its window is asked again."""
LONG_TOKEN = 128
"""Characters of a long token. Longer ones (runs of blanks) are rare, so a text with this many characters for each token
of the window certainly doesn't fit."""
BYTES_PER_TOKEN = 4
"""Bytes per token, about right for English; used to distribute requests among servers."""
FORWARDED = (
    "accept",
    "accept-encoding",
    "content-encoding",
    "content-type",
    "traceparent",
    "tracestate",
    "user-agent",
)
"""Headers of a request that reach the engine, without the caller's key: the engine gets the endpoint's."""
RETURNED = (
    "cache-control",
    "content-encoding",
    "content-length",
    "content-type",
    "retry-after",
    "retry-after-ms",
    "x-request-id",
)
"""Headers of the engine's response that reach the caller."""
RETURNED_PREFIXES = ("openai-", "x-ratelimit-")


class Engine:
    """A chat model, and its server if it has one.

    Args:
        model: any model; one of `open_model` that has a server gets the bytes of requests.
        window: the model's window in tokens, if it doesn't report it; the smaller of the two counts.
    """

    def __init__(self, model: ChatModel, window: int | None = None) -> None:
        self.model, self._window = model, window
        inner = innermost(model)
        # Ollama's own route takes other bytes, and its `/v1` drops what exceeds a window that it doesn't report.
        self.served: OpenAIModel | None = None
        """The model whose server takes the bytes of requests; if None, the model is called from here."""
        if isinstance(inner, OpenAIModel) and not isinstance(inner, OllamaModel):
            self.served = inner
        self.name = inner.model if isinstance(inner, OpenAIModel) else model.name
        """Name of the model in requests, the same as on its server."""
        self._known: tuple[float, int | None] | None = None
        """When the cached window expires, and the window."""
        self._http = dict[str, httpx.AsyncClient]()
        """HTTP clients by base URL."""

    async def window(self) -> int | None:
        """Returns the maximum tokens of prompt plus output; None if unknown."""
        now = time.monotonic()
        if self._known is None or now > self._known[0]:
            expiry = now + WINDOW_SECONDS
            try:
                # Only once: with the model's retries, a request that fits would wait for a server that is gone.
                server_window = await (self.served or self.model).window()
            except ModelError as error:
                if self._window is None and self._known is None:
                    raise
                logger.info("the window is that of before: %s", error)
                server_window, expiry = (
                    self._known[1] if self._known else None,
                    now + UNKNOWN_SECONDS,
                )
            limit = min((n for n in (server_window, self._window) if n is not None), default=None)
            if limit is None and self._known is None:
                logger.warning(
                    "the model %r doesn't report its window, so requests that exceed it aren't read: give --window",
                    self.name,
                )
            self._known = expiry, limit
        return self._known[1]

    async def exact(self) -> bool:
        """Returns whether counts are the model's own; otherwise they are upper bounds."""
        return getattr(await self.model.counter(), "exact", False)

    async def exceeds(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        room: int,
        limit: int | None,
    ) -> bool:
        """Returns whether a prompt with room for the output exceeds a limit of tokens; False without a limit."""
        if limit is None:
            return False
        if sum(len(message.content) for message in messages) > LONG_TOKEN * limit:
            return True
        bound = await asyncio.to_thread(ByteBound().count_messages, messages, tools=tools)
        if bound + room <= limit:
            return False
        try:
            counter = await self.model.counter()
            tokens = await asyncio.to_thread(counter.count_messages, messages, tools=tools)
        except TokenizerError:  # the template rejects it, and so will the engine
            return False
        return tokens + room > limit

    @asynccontextmanager
    async def send(
        self,
        path: str,
        raw: bytes,
        headers: Mapping[str, str],
        messages: Sequence[Message] = (),
    ) -> AsyncGenerator[Reply]:
        """Sends bytes to the engine; its connection is closed when the block ends.

        If the server is busy, failing or gone, another one that is up is tried, once.

        Args:
            path: path below the base URL, such as `/chat/completions`.
            raw: the body.
            headers: headers of the caller's request; without `accept-encoding` the response isn't compressed.
            messages: messages of the request, used to choose among several servers.

        Raises:
            ConnectionFailed: the engine can't be reached, or its response broke off.
            RequestTimeout: the engine didn't answer in time.
            AuthenticationFailed: the engine refuses the endpoint's key.
            RequestRefused: the engine redirects to where the request would be lost.
            ConfigError: the model runs in this process.
        """
        if self.served is None:
            raise ConfigError(f"the model {self.name!r} runs in this process and has no server")
        router = self.served.router
        for others in (True, False):
            response = refusal = None
            try:
                async with (
                    router.turn(messages, len(raw) // BYTES_PER_TOKEN) as server,
                    self._post(server, path, raw, headers) as response,
                ):
                    if not response.is_error:
                        yield Reply(response)
                        return
                    refusal = await _read_error(response, server.endpoint)
                    # for the router, which leaves out a server that is at fault
                    raise translate(refusal.error, server.endpoint)
            except ModelError as error:
                if response is not None and refusal is None:  # the answer was interrupted
                    raise
                at_fault = isinstance(error, (ConnectionFailed, ServerBusy, ServerFailed))
                if others and at_fault and router.up:
                    continue
                if refusal is None:
                    raise
            yield refusal
            return

    @asynccontextmanager
    async def _post(
        self, server: Server, path: str, raw: bytes, headers: Mapping[str, str]
    ) -> AsyncGenerator[httpx.Response]:
        """Sends bytes to one server; see `send`."""
        endpoint = server.endpoint
        client = await server.clients.get()
        request_headers = {name: headers[name] for name in FORWARDED if name in headers}
        request_headers = {
            "accept": "*/*",
            "accept-encoding": "identity",
            "user-agent": "memagent",
        } | request_headers
        http = self._client(server)
        request = http.build_request(
            "POST",
            endpoint.base_url.rstrip("/") + path,
            content=raw,
            headers=request_headers | _ours({**client.auth_headers, **client.default_headers}),
            timeout=httpx.Timeout(endpoint.timeout, connect=CONNECT_SECONDS),
        )
        try:
            response = await http.send(request, stream=True)
            try:
                if response.status_code in (401, 403):
                    raise AuthenticationFailed(
                        "the engine refuses the endpoint's key: whoever runs the endpoint has to set it"
                    )
                yield response
            finally:
                await response.aclose()
        except httpx.TimeoutException:
            raise RequestTimeout(
                f"the engine did not answer within {endpoint.timeout:g} s"
            ) from None
        except httpx.HTTPError as error:
            raise ConnectionFailed(
                f"the engine cannot be reached, or its response broke off ({type(error).__name__})"
            ) from None

    def _client(self, server: Server) -> httpx.AsyncClient:
        url = server.endpoint.base_url
        if url not in self._http:
            limits = httpx.Limits(max_connections=None, keepalive_expiry=KEEP_SECONDS)
            self._http[url] = httpx.AsyncClient(limits=limits, **server.clients.transport())
        return self._http[url]

    async def aclose(self) -> None:
        """Closes all connections, including the model's."""
        for http in self._http.values():
            await http.aclose()
        await self.model.aclose()


@dataclass(frozen=True)
class Reply:
    """The engine's answer."""

    response: httpx.Response
    body: bytes | None = None
    """The body if it was read, which only happens for errors."""

    @property
    def status(self) -> int:
        """HTTP status of the answer."""
        return self.response.status_code

    @property
    def headers(self) -> dict[str, str]:
        """Headers that reach the caller."""
        return {
            name: value
            for name, value in self.response.headers.items()
            if name in RETURNED or name.startswith(RETURNED_PREFIXES)
        }

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events."""
        return self.headers.get("content-type", "").lower().startswith("text/event-stream")

    async def read(self) -> bytes:
        """Reads the whole body, without unpacking it."""
        return b"".join([piece async for piece in self.pieces()])

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yields the body as it arrives, without unpacking it."""
        if self.body is not None:
            yield self.body
            return
        async for piece in self.response.aiter_raw():
            yield piece

    @property
    def error(self) -> openai.APIStatusError:
        """The error that the openai client would raise for this answer."""
        request, headers = self.response.request, self.response.headers
        body: Any = None
        with suppress(ValueError, AttributeError, httpx.DecodingError):
            response = httpx.Response(self.status, headers=headers, content=self.body)
            fields: Any = response.json()
            body = fields.get("error", fields)
        empty_response: Any = httpx.Response(self.status, headers=headers, request=request)
        return openai.APIStatusError("", response=empty_response, body=body)

    @property
    def overflows(self) -> bool:
        """Whether the engine refuses the request as too long for its window."""
        return self.body is not None and overflows(self.error)


def _ours(headers: Mapping[str, Any]) -> dict[str, str]:
    """Returns the headers of the model's own requests to its server: the key, and those of `open_model`."""
    return {
        name: value
        for name, value in headers.items()
        if isinstance(value, str)
        and name.lower() not in FORWARDED
        and not name.lower().startswith("x-stainless-")
    }


async def _read_error(response: httpx.Response, endpoint: Endpoint) -> Reply:
    """Reads an error with its body, without the endpoint's secrets if the engine repeats them."""
    raw = b"".join([piece async for piece in response.aiter_raw()])
    try:
        text = httpx.Response(response.status_code, headers=response.headers, content=raw).text
    except httpx.DecodingError:
        text = ""
    if any(secret in text for secret in endpoint.secrets):
        raw = json.dumps(Refusal(500, endpoint.quote(text)).body()).encode()
        response.headers["content-type"] = "application/json"
        response.headers.pop("content-encoding", None)
        response.headers["content-length"] = str(len(raw))
    return Reply(response, raw)
