"""One server of the policy: its requests, and the weights it has."""

from __future__ import annotations

import asyncio
import re
import time
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ConnectionFailed,
    ModelError,
    RequestRefused,
    RequestTimeout,
    ServerBusy,
    ServerFailed,
)
from memagent.models.dialects import DIALECTS as CHAT_DIALECTS
from memagent.models.openai_client import KEEP_SECONDS, Clients
from memagent.models.server import Server
from memagent.models.sharing import PerLoop
from memagent_engines.in_process import find_weights
from memagent_engines.lora import SETTINGS
from memagent_train.rollout.server_dialects import Dialect, Engine

CLIP = 300
"""Characters kept of a server's message."""
RESTARTS = 2.0
"""Seconds in which no server can restart: vLLM takes 12 to 20, SGLang longer."""
LOADED = re.compile("already (been )?loaded")
"""A server's message about an adapter that it already has, such as from another process of the training."""
ADAPTERS = (
    "To take adapters, vLLM must run with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora and --max-lora-rank, "
    "SGLang with --enable-lora, --max-lora-rank and --lora-target-modules; or set rollout.weights = 'model', which "
    "sends them merged"
)


class SentWeights(NamedTuple):
    """Weights that are sent to servers."""

    folder: Path
    """Absolute path, the same for all servers."""
    name: str
    """Unique name at the servers: the adapter's name, or the version of whole weights."""
    whole: bool
    """Whether these are all of the weights, rather than an adapter."""

    @classmethod
    def find(cls, folder: Path) -> SentWeights:
        """Identifies the weights in a folder. Blocks.

        Raises:
            ConfigError: the folder has no weights (vLLM would crash).
        """
        weights = find_weights(folder)
        whole = not (weights / SETTINGS).is_file()
        return cls(weights, uuid4().hex if whole else weights.name, whole)


class RolloutServer(Server):
    """A server that gets the trainer's weights; a router chooses among several.

    Args:
        engine: `vllm` or `sglang`.
        dialect: requests that the server takes.
        url: root of the server, without `/v1`.
        api_key: key of the server.
        timeout: seconds that one request may take.

    Raises:
        ConfigError: the URL or the key is invalid.
    """

    def __init__(
        self, engine: Engine, dialect: Dialect, url: str, *, api_key: str | None, timeout: float
    ) -> None:
        self.name = f"{engine} at {url}"
        """Name of the server in errors."""
        # The model list tells a router whether a server is back.
        listing = Clients(self.name, f"{url}/v1", api_key, {}, timeout)
        super().__init__(engine, listing, CHAT_DIALECTS[engine])
        self._dialect = dialect
        self._http = PerLoop(
            lambda: httpx.AsyncClient(
                base_url=url,
                headers={} if api_key is None else {"Authorization": f"Bearer {api_key}"},
                timeout=httpx.Timeout(timeout, connect=10.0, pool=None),
                limits=httpx.Limits(max_connections=None, keepalive_expiry=KEEP_SECONDS),
            )
        )
        self.weights: SentWeights | None = None
        """The weights that the server should have; None: those it started with."""
        self._restoring = PerLoop(asyncio.Lock)
        self._drew = ("", 0.0)
        """Name of the whole weights that the server last sampled with, and when."""

    async def load(self, weights: SentWeights) -> None:
        """Makes the server load weights.

        Raises:
            ModelError: it can't be reached, can't load them, or was started without the options for it.
        """
        await (self._load_whole if weights.whole else self._load_adapter)(weights)
        self.weights = weights

    async def _load_whole(self, weights: SentWeights) -> None:
        for path, body in self._dialect.load(str(weights.folder), weights.name):
            try:
                reply = await self._send(path, body)
            except RequestRefused as error:
                raise RequestRefused(
                    f"{error}. Weights are loaded through {path}: vLLM enables it with VLLM_SERVER_DEV_MODE=1 "
                    f"(older ones than 0.32 may lack it)"
                ) from error
            if reply.get("success") is False:
                raise ServerFailed(f"{self.name}: {path}: {str(reply)[:CLIP]}")

    async def _load_adapter(self, weights: SentWeights) -> None:
        path, old_weights = self._dialect.adapters, self.weights
        body = {"lora_name": weights.name, "lora_path": str(weights.folder)}
        try:
            await self._request(f"{path}load_lora_adapter", body)
        except (RequestRefused, ServerFailed) as error:
            if not LOADED.search(str(error)):
                raise type(error)(f"{error}. {ADAPTERS}") from error
        if old_weights and not old_weights.whole and old_weights.name != weights.name:
            with suppress(RequestRefused):  # a new process doesn't have it
                await self._request(f"{path}unload_lora_adapter", {"lora_name": old_weights.name})

    async def draw(self, body: dict[str, Any]) -> dict[str, Any]:
        """Requests one continuation; a server without its weights, such as a new process, gets them first.

        Raises:
            ModelError: the server can't be reached, or refuses.
        """
        path, sent = self._dialect.path, self.weights
        if sent is None:
            return await self._send(path, body)
        if sent.whole:
            # A restart between two requests shows in neither of them.
            name, when = self._drew
            recent = name == sent.name and time.monotonic() < when + RESTARTS
            if not recent and not await self._has(sent):
                async with self._restoring.get():
                    if not await self._has(sent):
                        await self.load(sent)
            reply = await self._send(path, body)
            self._drew = (sent.name, time.monotonic())
            return reply
        named = body | {self._dialect.adapter: sent.name}
        try:
            return await self._send(path, named)
        except RequestRefused as error:
            if sent.name not in str(error):
                raise
        await self.load(sent)
        return await self._send(path, named)

    async def _has(self, weights: SentWeights) -> bool:
        reply = await self._send(self._dialect.version)
        return reply.get("weight_version") == weights.name

    async def aclose(self) -> None:
        """Closes the server's connections of this event loop."""
        await super().aclose()
        for _, client in self._http.take_all():
            await client.aclose()

    async def _send(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        response = await self._request(path, body)
        if not response.content:
            return {}
        try:
            reply = response.json()
        except ValueError as error:
            raise BadResponse(
                f"{self.name}: {path}: {response.text[:CLIP]!r} is not JSON"
            ) from error
        return reply if isinstance(reply, dict) else {"reply": reply}

    async def _request(self, path: str, body: dict[str, Any] | None) -> httpx.Response:
        try:
            method = "GET" if body is None else "POST"
            response = await self._http.get().request(method, path, json=body)
        except httpx.TimeoutException as error:
            raise RequestTimeout(f"{self.name}: {path} took too long ({error!r})") from error
        except httpx.TransportError as error:
            raise ConnectionFailed(
                f"{self.name}: {path}: {error!r}; is the server running?"
            ) from error
        if response.status_code >= HTTPStatus.BAD_REQUEST:
            raise _choose_error(response.status_code)(
                f"{self.name}: {path}: {response.status_code} {response.text[:CLIP]}"
            )
        return response


def _choose_error(status: int) -> type[ModelError]:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return AuthenticationFailed
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return ServerBusy
    if status >= HTTPStatus.BAD_GATEWAY:  # a gateway's reply while there is no server behind it
        return ConnectionFailed
    return ServerFailed if status >= HTTPStatus.INTERNAL_SERVER_ERROR else RequestRefused
