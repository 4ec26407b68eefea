"""One server of the policy: its requests, and the weights that it has."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Any

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
from memagent_train.rollout.server_dialects import Dialect, Engine

CLIP = 300
"""Characters kept of a server's message."""


class RolloutServer(Server):
    """A server that gets the trainer's weights; a router chooses among several.

    Args:
        engine: `vllm` or `sglang`.
        dialect: its requests.
        url: its root, without `/v1`.
        api_key: its key.
        timeout: seconds that one request may take.

    Raises:
        ConfigError: the URL or the key is invalid.
    """

    def __init__(
        self, engine: Engine, dialect: Dialect, url: str, *, api_key: str | None, timeout: float
    ) -> None:
        self.name = f"{engine} at {url}"
        """In errors."""
        # Their model list tells a router whether a server is back.
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
        self.weights: Path | None = None
        """The folder of the weights that it should have; None for those that it started with."""
        self._losses = self._restored = 0
        self._restoring = PerLoop(asyncio.Lock)

    async def load(self, folder: Path) -> None:
        """Makes it load the weights from an absolute path.

        Raises:
            ModelError: it can't be reached, can't load them, or has no such endpoint (vLLM outside development mode).
        """
        for path, body in self._dialect.load(str(folder)):
            try:
                reply = await self._send(path, body)
            except RequestRefused as error:
                raise RequestRefused(
                    f"{error}. Weights are loaded through {path}: vLLM enables it with VLLM_SERVER_DEV_MODE=1"
                ) from error
            if reply.get("success") is False:
                raise ServerFailed(f"{self.name}: {path}: {str(reply)[:CLIP]}")
        self.weights = folder

    def lose(self) -> None:
        """Notes that it may have other weights by now than it should."""
        self._losses += 1

    async def draw(self, body: dict[str, Any]) -> dict[str, Any]:
        """Asks for a continuation, once; a server that was away gets its weights first.

        Raises:
            ModelError: it can't be reached, or refuses.
        """
        while True:
            async with self._restoring.get():
                if self._restored < self._losses and self.weights is not None:
                    losses = self._losses
                    await self.load(self.weights)
                    self._restored = losses
            losses = self._losses
            try:
                reply = await self._send(self._dialect.path, body)
            except ConnectionFailed:
                self.lose()
                raise
            if losses == self._losses:
                return reply
            # Another request failed meanwhile: this reply may be from a new process with its initial weights.

    async def aclose(self) -> None:
        """Closes its connections of this event loop."""
        await super().aclose()
        for _, client in self._http.take_all():
            await client.aclose()

    async def _send(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        try:
            response = await self._http.get().post(path, json=body)
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
        if not response.content:
            return {}
        try:
            reply = response.json()
        except ValueError as error:
            raise BadResponse(
                f"{self.name}: {path}: {response.text[:CLIP]!r} is not JSON"
            ) from error
        return reply if isinstance(reply, dict) else {"reply": reply}


def _choose_error(status: int) -> type[ModelError]:
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return AuthenticationFailed
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return ServerBusy
    if status >= HTTPStatus.BAD_GATEWAY:  # what a gateway says while there is no server behind it
        return ConnectionFailed
    return ServerFailed if status >= HTTPStatus.INTERNAL_SERVER_ERROR else RequestRefused
