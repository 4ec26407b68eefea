"""Where blocking work is done: a few threads of memagent's own, for tokenising and for the run store."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
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
        self._mutex = threading.Lock()
        self._pid = 0
        self._pool: ThreadPoolExecutor | None = None

    def get(self) -> ThreadPoolExecutor:
        with self._mutex:
            if self._pool is None or self._pid != os.getpid():
                self._pool = ThreadPoolExecutor(WORKERS, thread_name_prefix="memagent-work")
                self._pid = os.getpid()
            return self._pool


_pool = _Pool()


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs short blocking work in a thread and awaits it, also when cancelled: a commit under way is then through.

    Not for work that may wait long for others (reading a pipe, say): it would keep the few threads from
    everything else. That belongs into `asyncio.to_thread`.
    """
    context = contextvars.copy_context()
    call: Callable[[], T] = partial(function, *args, **kwargs)
    work = asyncio.get_running_loop().run_in_executor(_pool.get(), lambda: context.run(call))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # looked at, so that nobody reports it as lost
        raise
