"""Blocking generators, driven from an event loop."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Generator


async def pull_in_threads(pieces: Generator[str]) -> AsyncGenerator[str]:
    """Takes one piece at a time from a blocking generator, each in a thread, and always closes it at the end.

    On cancellation it doesn't wait for the thread, which may read a pipe forever: the thread then closes the
    generator as soon as the read returns.
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
        # If the lock is held, the thread of a cancelled step has it, and closes the generator after releasing it.
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
