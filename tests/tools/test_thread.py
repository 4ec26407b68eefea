import asyncio
import contextvars
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from memagent.errors import ToolError
from memagent.tools.thread import in_own_thread

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME")


async def test_it_runs_elsewhere_in_the_same_context() -> None:
    NAME.set("here")
    name, thread = await in_own_thread(lambda: (NAME.get(), threading.current_thread()))
    assert name == "here"
    assert thread is not threading.current_thread()
    assert thread.daemon


async def test_a_hundred_run_at_once() -> None:
    all_there = threading.Barrier(100)
    await asyncio.gather(*(in_own_thread(lambda: all_there.wait(30)) for _ in range(100)))


def raising(error: BaseException) -> Callable[[], Any]:
    def call() -> Any:
        raise error

    return call


async def test_errors_come_as_they_are() -> None:
    with pytest.raises(KeyError, match="x"):
        await in_own_thread(raising(KeyError("x")))


@pytest.mark.parametrize(
    "error",
    [
        StopIteration(3),
        SystemExit(3),
        asyncio.CancelledError(3),
        KeyboardInterrupt(3),
        GeneratorExit(3),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_would_upset_the_event_loop_comes_as_an_error(error: BaseException) -> None:
    with pytest.raises(ToolError, match=rf"{type(error).__name__}: 3"):
        await asyncio.wait_for(in_own_thread(raising(error)), 10)


async def test_cancelling_does_not_wait() -> None:
    go_on, through = threading.Event(), threading.Event()

    def work() -> None:
        go_on.wait(30)
        through.set()

    task = asyncio.create_task(in_own_thread(work))
    await asyncio.sleep(0.05)
    task.cancel()
    started = time.perf_counter()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.perf_counter() - started < 5
    go_on.set()
    assert await asyncio.to_thread(through.wait, 10)


def test_a_thread_that_is_left_alone_keeps_no_program_from_ending() -> None:
    code = """
import asyncio, threading
from memagent.tools.thread import in_own_thread
async def main():
    try:
        await asyncio.wait_for(in_own_thread(threading.Event().wait), 0.1)
    except TimeoutError:
        print("given up")
asyncio.run(main())
"""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("given up\n", "", 0)
