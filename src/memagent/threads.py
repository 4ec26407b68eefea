"""memagent's threads: a few for short blocking work, one per call for long work, one with an event loop."""

import asyncio
import contextvars
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, ParamSpec, Self, TypeVar

from memagent.errors import ConfigError, ToolError
from memagent.texts import name_error

WORKERS = max(1, min(4, (os.cpu_count() or 1) // 2))
"""Half the cores: the other half is for the event loop, and for an engine on the same machine. Few on purpose: each
thread has a separate heap, and the texts of a long run fragment about 6 MB of each."""

P = ParamSpec("P")
T = TypeVar("T")

allowed_workers = WORKERS


@cache
def _executor(process: int, workers: int) -> ThreadPoolExecutor:
    """Makes an executor per process, since threads don't survive a fork, and per size, since it can't grow."""
    return ThreadPoolExecutor(workers, thread_name_prefix="memagent-work")


def widen(workers: int) -> None:
    """Allows at least `workers` threads from now on, for work that waits for a server without using a core.

    Threads are still started only when all others are busy. A smaller number than before has no effect.
    """
    global allowed_workers  # noqa: PLW0603 - one limit for the process
    allowed_workers = max(allowed_workers, workers)


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Runs short blocking work in a thread and awaits it even when cancelled, so a commit in progress completes.

    Not for work that may wait long for others (reading a pipe, say), which would block the few threads: use
    `in_own_thread`. Work that asks a server requests more threads (`widen`), has a time limit, and isn't retried.
    """
    call: Callable[[], T] = partial(function, *args, **kwargs)
    context_call = partial(contextvars.copy_context().run, call)
    work = asyncio.wrap_future(_executor(os.getpid(), allowed_workers).submit(context_call))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # retrieved, so that asyncio doesn't report it as lost
        raise


@dataclass
class _Inner:
    """What `run_sync` runs in a thread of `in_own_thread`."""

    runs: set[Future[Any]] = field(default_factory=set[Future[Any]])
    given_up: bool = False
    """Whether nobody waits for the thread any more."""


_inner: contextvars.ContextVar[_Inner] = contextvars.ContextVar("inner")


async def in_own_thread(call: Callable[[], T]) -> T:
    """Runs `call` in a new thread, and awaits it.

    Cancelling does not wait for it, since a thread can't be killed; only what it runs with `run_sync` is cancelled.
    It continues in the background, but unlike a pool's thread it doesn't keep the program from exiting.

    Raises:
        Exception: what the call raised. Anything that isn't an Exception (SystemExit, a cancellation inside the call)
            is raised as a ToolError.
    """
    context, inner = contextvars.copy_context(), _Inner()
    context.run(_inner.set, inner)
    future: Future[T] = Future()

    def work() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(context.run(call))
        except BaseException as error:  # noqa: BLE001 - raised where it is awaited
            # A future can't hold a StopIteration, and anything that isn't an Exception would end the event loop.
            if isinstance(error, Exception) and not isinstance(error, StopIteration):
                future.set_exception(error)
            else:
                future.set_exception(ToolError(name_error(error)))

    threading.Thread(target=work, name="memagent-tool", daemon=True).start()
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        with _mutex:
            inner.given_up = True
            for run in list(inner.runs):
                run.cancel()
        raise


_mutex = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""Event loops by process id, since threads don't survive a fork."""


def _background() -> asyncio.AbstractEventLoop:
    """Returns the event loop of one daemon thread, made on first use."""
    with _mutex:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = _loops[os.getpid()] = asyncio.new_event_loop()
            threading.Thread(target=_serve, args=(loop,), name="memagent", daemon=True).start()
        return loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    while True:
        # asyncio sets these as the task's exception and stops the loop, which other work still needs.
        with suppress(SystemExit, KeyboardInterrupt):
            return loop.run_forever()


async def in_background(work: Coroutine[Any, Any, T]) -> T:
    """Runs `work` on the background loop and awaits it: what it creates there outlives the caller's loop."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, _background()))


def run_sync(work: Coroutine[Any, Any, T], *, release: bool = False) -> T:
    """Runs `work` on the background loop and waits for it: works in scripts, threads and notebooks.

    Ctrl-C cancels the work, waits until it has released what it holds, and raises KeyboardInterrupt. In a thread of
    `in_own_thread` that was given up it is cancelled at once, unless it serves to `release` something.

    Raises:
        ConfigError: called from the background loop itself (a tool or model that uses the sync API),
            which would wait for itself.
    """
    loop = _background()
    with suppress(RuntimeError):  # no loop runs in this thread
        if asyncio.get_running_loop() is loop:
            work.close()
            raise ConfigError("sync call in memagent's event loop: await its async version")
    try:
        with _mutex:  # whoever cancels finds it as soon as it may have begun
            future, inner = asyncio.run_coroutine_threadsafe(work, loop), _inner.get(_Inner())
            inner.runs.add(future)
            if inner.given_up and not release:
                future.cancel()
        future.add_done_callback(inner.runs.discard)
        return future.result()
    except BaseException:  # Ctrl-C, or what a signal handler raised, while the work continues
        _stop(work, loop)
        raise


class Closing(ABC):
    """Closed by `aclose`, by `close`, and by the end of a `with` or `async with` block."""

    @abstractmethod
    async def aclose(self) -> None:
        """Releases what it holds."""

    def close(self) -> None:
        """Sync version of `aclose`."""
        run_sync(self.aclose(), release=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return run_sync(self.__aenter__())

    def __exit__(self, *_: object) -> None:
        self.close()


def _stop(work: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> None:
    # Ctrl-C may come while the work is being submitted, before there is a future to cancel.
    async def stop() -> None:
        tasks = {task for task in asyncio.all_tasks() if task.get_coro() is work}
        for task in tasks:
            task.cancel()
        if tasks:  # they need some turns of the loop to clean up
            await asyncio.wait(tasks, timeout=10)

    asyncio.run_coroutine_threadsafe(stop(), loop).result()
