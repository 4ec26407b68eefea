"""Values shared by tasks, threads and event loops: one for all, or one per event loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import cache, partial
from typing import Generic, TypeVar

from memagent.threads import in_thread

T = TypeVar("T")


class _LeaderLeftError(Exception):
    """The caller doing the work was cancelled; a waiting one takes over."""


class Once(Generic[T]):
    """Calls `make` for the first caller and shares the result with all others.

    A failure is raised for all who waited, and not cached. If the caller at work is cancelled, another takes over.
    """

    def __init__(self, make: Callable[[], Awaitable[T]]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._future: Future[T] | None = None

    async def get(self) -> T:
        """Returns the value; raises what `make` raised."""
        while True:
            with self._lock:
                leads = self._future is None
                future = self._future = self._future or Future()
            if leads:
                return await self._lead(future)
            if future.done() and future.exception() is None:
                return future.result()  # the usual case, without a turn of the event loop
            try:
                # shield: a waiter that is cancelled must not cancel the future for the others.
                return await asyncio.shield(asyncio.wrap_future(future))
            except _LeaderLeftError:
                continue

    async def _lead(self, future: Future[T]) -> T:
        try:
            value = await self._make()
        except BaseException as error:
            with self._lock:
                self._future = None
            future.set_exception(error if isinstance(error, Exception) else _LeaderLeftError())
            raise
        future.set_result(value)
        return value


def once_in_thread(make: Callable[[], T]) -> Once[T]:
    """Makes the value in a thread. It is kept even if the caller doing the work is cancelled meanwhile."""
    return Once(partial(in_thread, cache(make)))  # a caller that takes over gets it from the cache


class PerLoop(Generic[T]):
    """Holds one value per event loop.

    The sync API runs on a background loop and async callers on theirs, so one model may serve several loops at once.
    A value may refer to its loop, which makes weak keys useless: closed loops are dropped when a new one appears.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._values: dict[asyncio.AbstractEventLoop, T] = {}

    def get(self) -> T:
        """Returns the running loop's value, made on its first call."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._values:
                for old_loop in list(self._values):
                    if old_loop.is_closed():
                        del self._values[old_loop]
                self._values[loop] = self._make()
            return self._values[loop]

    def take_all(self) -> list[tuple[asyncio.AbstractEventLoop, T]]:
        """Removes and returns all values, each with its loop."""
        with self._lock:
            items = list(self._values.items())
            self._values.clear()
        return items
