"""Blocking generators, driven from an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator


async def pull_in_threads(pieces: Generator[str]) -> AsyncGenerator[str]:
    """Takes one piece at a time from a blocking generator, each in a thread, and closes it however this ends.

    A cancelled wait does not wait for its thread, which may read a pipe for ever: that thread then closes the
    generator as soon as it comes out of it.
    """
    inside = threading.Lock()  # whoever holds it runs the generator
    left = False

    def step() -> str | None:
        with inside:
            piece = None if left else next(pieces, None)
        if left:
            close()
        return piece

    def close() -> None:
        # A lock that is held is with the thread of a cancelled step, which closes once it has let go of it.
        if inside.acquire(blocking=False):
            try:
                pieces.close()
            finally:
                inside.release()

    try:
        while (piece := await asyncio.to_thread(step)) is not None:
            yield piece
    finally:
        left = True
        await asyncio.to_thread(close)
