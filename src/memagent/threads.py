"""Where blocking work is done: a few threads of memagent's own, for tokenising and for the run store."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

WORKERS = max(1, min(4, (os.cpu_count() or 1) // 2))
"""Half the cores: the other half is for the event loop, and for an engine on the same machine. Few on purpose: each
thread has a heap of its own, and the texts of a long run leave about 6 MB of holes in every heap that they pass."""

P = ParamSpec("P")
T = TypeVar("T")


class _Pool:
    """The threads, made on first use and again after a fork, which leaves none alive."""

    def __init__(self) -> None:
        self._workers = WORKERS
        self.forget()

    def forget(self) -> None:
        """What a forked process does: the threads are not its own, nor is whoever held the lock."""
        self._mutex = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Queues one call."""
        # Under the lock, since an executor that `widen` has replaced takes no more work.
        with self._mutex:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._workers, thread_name_prefix="memagent-work")
            return self._pool.submit(call)

    def widen(self, workers: int) -> None:
        """Replaces the executor, which cannot grow."""
        with self._mutex:
            if workers <= self._workers:
                return
            self._workers = workers
            if self._pool is not None:
                self._pool.shutdown(wait=False)  # its queue is still worked off
                self._pool = None


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.forget)


def widen(workers: int) -> None:
    """Allows at least so many threads from now on, where work waits for a server without using a core.

    Threads are still started only when all others are busy. A smaller number than before changes nothing.
    """
    _pool.widen(workers)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs short blocking work in a thread and awaits it, also when cancelled: a commit under way is then through.

    Not for work that may wait long for others (reading a pipe, say): it would keep the few threads from
    everything else. That belongs into `asyncio.to_thread`. Work that asks a server asks for more threads
    (`widen`), has a time limit, and is not repeated here: who awaits it waits for the server.
    """
    context = contextvars.copy_context()
    call: Callable[[], T] = partial(function, *args, **kwargs)
    work = asyncio.wrap_future(_pool.submit(partial(context.run, call)))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # looked at, so that nobody reports it as lost
        raise
