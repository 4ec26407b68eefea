"""Values that belong to one event loop each: HTTP clients and semaphores do not cross loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Holds one value for each event loop that asks.

    The sync API runs on a background loop and async callers on theirs, so one model may serve several
    loops at once. A value (a semaphore, say) may hold its loop, which makes weak keys useless: closed
    loops are dropped when the next loop comes instead.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._values: dict[asyncio.AbstractEventLoop, T] = {}

    def get(self) -> T:
        """The running loop's value, made on its first call."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._values:
                for other in list(self._values):
                    if other.is_closed():
                        del self._values[other]
                self._values[loop] = self._make()
            return self._values[loop]

    def take_all(self) -> list[tuple[asyncio.AbstractEventLoop, T]]:
        """Removes and returns all values, each with its loop."""
        with self._lock:
            taken = list(self._values.items())
            self._values.clear()
        return taken
