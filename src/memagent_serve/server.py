"""Serves the endpoint on a socket: uvicorn, with a time limit for request heads."""

import asyncio
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from memagent.models import ChatModel
from memagent_serve.app import make_app
from memagent_serve.settings import Settings

HEAD_SECONDS = 20.0
"""Seconds for the head of a connection's first request; uvicorn's own limit applies only between requests."""


KEEP_SECONDS = 75
"""Seconds that an idle connection is kept, as in nginx. Must be longer than clients keep theirs (httpx, and so the
`openai` client, 5 s; aiohttp 15 s): a request that is sent while the server closes the connection is lost."""


class Protocol(H11Protocol):
    """Closes connections whose request doesn't begin in time, or whose head stays incomplete."""

    _clock: asyncio.TimerHandle | None = None

    # uvicorn's base class narrows the argument in the same way.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the timer."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """Stops the timer once a head is complete, and starts it with the first bytes of the next one."""
        super().data_received(data)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stops the timer."""
        self._stop()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._stop()
        elif self._clock is None:
            self._clock = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None


class _Server(uvicorn.Server):
    """Reports where it listens."""

    def __init__(self, config: uvicorn.Config, say: Callable[[str], object]) -> None:
        super().__init__(config)
        self._say = say

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        for server in self.servers:
            host, port = server.sockets[0].getsockname()[:2]
            self._say(f"memagent serves at http://{f'[{host}]' if ':' in host else host}:{port}/v1")


def make_server(
    model: ChatModel,
    settings: Settings,
    *,
    host: str = "127.0.0.1",
    port: int = 8300,
    grace: float = 5,
    say: Callable[[str], object] = print,
) -> uvicorn.Server:
    """Makes the server of an endpoint; its `run` serves until a signal arrives.

    Requests then get some time to finish, and those left are cut off: readings can be resumed.

    Args:
        model: the model that answers; closed at the end.
        settings: settings of the endpoint.
        host: address to listen on.
        port: port to listen on; 0 picks a free one.
        grace: seconds for requests to finish.
        say: called with a line that has the URL.
    """
    config = uvicorn.Config(
        make_app(model, settings),
        host=host,
        port=port,
        http=Protocol,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_SECONDS,
        timeout_graceful_shutdown=int(grace),
    )
    return _Server(config, say)
