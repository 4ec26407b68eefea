"""A request to the engine and its response to the client, byte for byte."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.types import Message, Send

from memagent.errors import ConfigError, ModelError
from memagent_serve.engine import Engine
from memagent_serve.overflow import Conversation
from memagent_serve.wire import Streamed, while_connected

logger = logging.getLogger("memagent.serve")


class TooLong(Exception):
    """The engine refuses a request because it exceeds its window; nothing was sent to the client."""


async def relay(
    engine: Engine,
    path: str,
    raw: bytes,
    conversation: Conversation,
    request: Request,
    send: Send,
    *,
    give_back: bool,
) -> None:
    """Sends bytes to the engine, and the client what it answers. A response that breaks off does so here too.

    Args:
        engine: with a server.
        path: below its base URL.
        raw: the request's body.
        conversation: in the body, which chooses among several servers.
        request: the client's.
        send: of the client's connection.
        give_back: whether a request that is too long can be made to fit; otherwise the client gets the engine's error.

    Raises:
        TooLong: the engine says so, and it can.
        ModelError: the engine can't be reached.
    """
    try:
        messages, _ = await conversation.read()
    except ConfigError:
        messages = []
    started = False

    async def watched(message: Message) -> None:
        nonlocal started
        started = True
        await send(message)

    async def work() -> None:
        async with engine.send(path, raw, request.headers, messages) as reply:
            if give_back and reply.overflows:
                raise TooLong
            response = Streamed(reply.pieces(), reply.headers, reply.status)
            await response.send(watched)

    try:
        await while_connected(request.receive, work())
    except ModelError as error:
        if not started:
            raise
        # Returning without an end makes the server close the connection, so that nobody takes this for the end.
        logger.warning("a response broke off: %s", error)
