"""Sync entry points, prefetching, concurrent steps, and the names of runs."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import threading
import time
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import Any, TypeVar

from memagent.errors import ConfigError

T = TypeVar("T")

# --- sync entry points


_mutex = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""By process, each in a daemon thread of its own: none lives on behind a fork."""


def _background() -> asyncio.AbstractEventLoop:
    with _mutex:
        if (loop := _loops.get(os.getpid())) is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="memagent", daemon=True).start()
        return loop


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` on the background loop and waits for it: works in scripts, threads and notebooks.

    Ctrl-C cancels the work, waits until it has let go of what it holds, and raises KeyboardInterrupt.

    Raises:
        ConfigError: called from the background loop itself (a tool or model that uses the sync API),
            which would wait for itself.
    """
    loop = _background()
    try:
        inside = asyncio.get_running_loop() is loop
    except RuntimeError:
        inside = False
    if inside:
        work.close()
        raise ConfigError(
            "a sync method was called from inside memagent's own event loop: await its async twin"
        )
    try:
        return asyncio.run_coroutine_threadsafe(work, loop).result()
    except BaseException:  # Ctrl-C, or what a signal handler raised, while the work goes on
        _stop(work, loop)
        raise


def _stop(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
    # Ctrl-C may come while the work is handed over, before there is a future to cancel.
    async def stop() -> None:
        tasks = {task for task in asyncio.all_tasks() if task.get_coro() is work}
        for task in tasks:
            task.cancel()
        if tasks:  # they need some turns of the loop to clean up
            await asyncio.wait(tasks, timeout=10)

    asyncio.run_coroutine_threadsafe(stop(), loop).result()


# --- concurrency


async def prefetch(items: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """The same items, the next one being made while the current one is used."""
    upcoming = asyncio.ensure_future(anext(items, None))
    try:
        while (item := await upcoming) is not None:
            upcoming = asyncio.ensure_future(anext(items, None))
            yield item
    finally:
        upcoming.cancel()
        await asyncio.gather(upcoming, return_exceptions=True)
        await items.aclose()


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Awaits all at once, and returns their results in order.

    After a failure the others still finish, then the first one is raised; cancelling cancels all.
    """
    coroutines = list(work)
    if len(coroutines) == 1:  # the usual case; a task would cost it 0.05 ms
        return [await coroutines[0]]
    results: list[T] = []
    for result in await asyncio.gather(*coroutines, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


# --- names


def new_run_id() -> str:
    """A fresh run id: sortable by time, `20261120-101530-1f3a09cd`."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def check_run_id(run_id: str) -> str:
    """A run id that is safe as a file name.

    Raises:
        ConfigError: empty, over 64 characters, or with characters other than letters, digits, `.`, `_`, `-`.
    """
    # A leading '-' would read as an option of the command, a leading '.' as a hidden file.
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", str(run_id)):
        raise ConfigError(
            f"run id {run_id!r}: use 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit"
        )
    return run_id
