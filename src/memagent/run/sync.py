"""Prefetching, concurrent steps, and the names of runs."""

import asyncio
import re
import secrets
import time
from collections.abc import AsyncGenerator, Coroutine, Iterable
from typing import Any, TypeVar

from memagent.errors import ConfigError

T = TypeVar("T")

# --- concurrency


async def prefetch(items: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """Yields the same items, preparing the next one while the current one is used."""
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
    """Awaits coroutines concurrently, and returns their results in order.

    After a failure the others still finish, then the first failure is raised; cancelling cancels all.
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
    """Returns a new run id, sortable by time: `20261120-101530-1f3a09cd`."""
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"


def check_run_id(run_id: str) -> str:
    """Returns a run id that is safe as a file name. Raises a `ConfigError` if it isn't."""
    # A leading '-' would look like a command-line option, a leading '.' would make a hidden file.
    run_id = str(run_id)  # a UUID or a number will do
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", run_id):
        raise ConfigError(
            f"run id {run_id!r}: use 1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit"
        )
    return run_id
