"""Slow responses: dropped when the client leaves, and kept alive while there is nothing to send."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from memagent_serve.refusals import ClientLeft

T = TypeVar("T")
Progress = Callable[[str], None]
"""Called with a line about what was done last."""

PING_SECONDS = 10.0
"""Seconds between two signs of life in a stream: proxies close connections that are silent for 60 s."""
SEND_SECONDS = 60.0
"""Seconds for a client to take what was sent, before it is dropped."""


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Runs the work; cancels it if the client leaves first.

    Raises:
        ClientLeft: the client has hung up.
    """
    task, watcher = asyncio.create_task(work), asyncio.create_task(_wait_until_gone(receive))
    try:
        await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientLeft
        return task.result()
    finally:
        for job in (task, watcher):
            job.cancel()
        await asyncio.gather(task, watcher, return_exceptions=True)


async def _wait_until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class Streamed(Response):
    """A response sent in pieces as they arrive. If they end with an error, the connection breaks off.

    Args:
        pieces: pieces of the body. Closed at the end, even if the client leaves before.
        headers: a `Content-Length` among them must be right.
        status: status of the response.
    """

    def __init__(
        self, pieces: AsyncGenerator[bytes], headers: Mapping[str, str], status: int = 200
    ) -> None:
        self.status_code, self.background, self._pieces = status, None, pieces
        self.init_headers(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the response."""
        async with aclosing(self._pieces):
            await while_connected(receive, self.send(send))

    async def send(self, send: Send) -> None:
        """Sends the response to a client that is watched elsewhere."""
        start: Message = {"type": "http.response.start", "status": self.status_code}
        await _patiently(send({**start, "headers": self.raw_headers}))
        async for piece in self._pieces:
            await _patiently(send({"type": "http.response.body", "body": piece, "more_body": True}))
        await _patiently(send({"type": "http.response.body", "body": b"", "more_body": False}))


async def _patiently(sending: Awaitable[None]) -> None:
    """Waits for a client that reads slowly, but not for one that doesn't read."""
    try:
        async with asyncio.timeout(SEND_SECONDS):
            await sending
    except TimeoutError:
        raise ClientLeft from None


async def narrate(work: Callable[[Progress], Coroutine[Any, Any, T]]) -> AsyncGenerator[str | T]:
    """Yields what the work reports of its progress, an empty line if it is silent for a while, and finally its result.

    Closing the iterator cancels the work.
    """
    queue = asyncio.Queue[str]()
    task = asyncio.create_task(work(queue.put_nowait))
    # Wakes the loop below at the end of the work.
    task.add_done_callback(lambda _: queue.put_nowait(""))
    try:
        while not (task.done() and queue.qsize() <= 1):
            try:
                line = await asyncio.wait_for(queue.get(), PING_SECONDS)
            except TimeoutError:
                line = ""
            if line or not task.done():
                yield line
        yield task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def comment(line: str) -> bytes:
    """Formats a comment of an event stream, which clients skip."""
    return f": {' '.join(line.split()) or 'at work'}\n\n".encode()


def event(data: str, name: str | None = None) -> bytes:
    """Formats an event of a stream."""
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    # nginx would otherwise hold the stream back until it is complete.
    "X-Accel-Buffering": "no",
}
