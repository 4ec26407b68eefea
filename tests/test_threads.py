import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

from memagent.errors import ConfigError, ToolError
from memagent.threads import WORKERS, in_own_thread, in_thread, run_sync, widen


async def test_work_is_done_elsewhere_by_few() -> None:
    names = await asyncio.gather(
        *(in_thread(lambda: threading.current_thread().name) for _ in range(40))
    )
    assert all(name.startswith("memagent-work") for name in names)
    assert len(set(names)) <= WORKERS


async def test_errors_arguments_and_context_pass_through() -> None:
    here = contextvars.ContextVar("here", default=0)
    here.set(7)
    assert await in_thread(lambda a, b: (a, b, here.get()), 1, b=2) == (1, 2, 7)
    with pytest.raises(KeyError, match="x"):
        await in_thread({}.__getitem__, "x")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_gets_threads_of_its_own() -> None:
    code = (
        "import asyncio, os\nfrom memagent.threads import in_thread\n"
        "asyncio.run(in_thread(int))\npid = os.fork()\n"
        "if pid == 0: os._exit(asyncio.run(in_thread(int)))\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=20, check=False).returncode == 0


async def test_more_threads_when_asked_for() -> None:
    more = WORKERS + 3
    widen(more)
    widen(1)
    together = threading.Barrier(more)
    places = await asyncio.gather(*(in_thread(together.wait, 10) for _ in range(more)))
    assert sorted(places) == list(range(more))
    names = await asyncio.gather(
        *(in_thread(lambda: threading.current_thread().name) for _ in range(40))
    )
    assert len(set(names)) <= more


async def test_work_queued_before_there_were_more_threads_is_done() -> None:
    gate = threading.Event()
    before = [asyncio.create_task(in_thread(gate.wait, 10)) for _ in range(2 * WORKERS + 1)]
    await asyncio.sleep(0.05)
    widen(WORKERS + 1)
    assert await in_thread(int) == 0, "the old threads are all occupied"
    assert not any(task.done() for task in before)
    gate.set()
    assert await asyncio.gather(*before) == [True] * len(before)


def test_widening_under_way_loses_no_work() -> None:
    results: list[list[int]] = []

    async def much() -> list[int]:
        return [await in_thread(int, str(n)) for n in range(200)]

    users = [threading.Thread(target=lambda: results.append(asyncio.run(much()))) for _ in range(4)]
    for user in users:
        user.start()
    workers = WORKERS
    while any(user.is_alive() for user in users):
        workers += 1
        widen(workers)
        time.sleep(0.001)
    assert results == [list(range(200))] * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_gets_as_many_threads() -> None:
    code = (
        "import asyncio, os, threading\nfrom memagent.threads import WORKERS, in_thread, widen\n"
        "more = WORKERS + 3\nwiden(more)\nasyncio.run(in_thread(int))\npid = os.fork()\n"
        "async def all():\n"
        "    together = threading.Barrier(more)\n"
        "    await asyncio.gather(*(in_thread(together.wait, 10) for _ in range(more)))\n"
        "if pid == 0:\n    asyncio.run(all())\n    os._exit(0)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=20, check=False).returncode == 0


# --- threads for one call

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


async def test_cancelling_ends_what_the_thread_runs_with_the_sync_api() -> None:
    started, cleaned, ended = threading.Event(), threading.Event(), threading.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.set()

    async def close() -> None:
        await asyncio.sleep(0)
        ended.set()

    def call() -> None:
        try:
            run_sync(work())
        finally:
            with pytest.raises(CancelledError):
                run_sync(work())  # nothing begins any more
            run_sync(close(), release=True)

    other = asyncio.create_task(in_own_thread(lambda: run_sync(asyncio.sleep(0.3, "other"))))
    task = asyncio.create_task(in_own_thread(call))
    assert await asyncio.to_thread(started.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await asyncio.to_thread(cleaned.wait, 10)
    assert await asyncio.to_thread(ended.wait, 10)
    assert await other == "other"


def test_a_thread_that_is_left_alone_keeps_no_program_from_ending() -> None:
    code = """
import asyncio, threading
from memagent.threads import in_own_thread
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


# --- the thread with the event loop


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


def test_sync_calls_work_in_scripts_threads_and_running_loops() -> None:
    assert run_sync(double(1)) == 2
    results = list[int]()
    threads = [
        threading.Thread(target=lambda n=n: results.append(run_sync(double(n)))) for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 2, 4, 6, 8, 10, 12, 14]

    async def notebook() -> int:
        return run_sync(double(3))  # a cell of a notebook runs inside a loop like this one

    assert asyncio.run(notebook()) == 6


def test_errors_come_through_as_they_are() -> None:
    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        run_sync(fail())


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(3)], ids=repr)
async def test_what_would_end_the_event_loop_ends_only_its_call(error: BaseException) -> None:
    async def fail() -> None:
        await asyncio.ensure_future(in_thread(raising(error)))  # as documents are read

    async def wait() -> bool:
        waiting.set()
        return await asyncio.to_thread(ended.wait, 10)

    waiting, ended = threading.Event(), threading.Event()
    other = asyncio.create_task(in_own_thread(lambda: run_sync(wait())))
    assert await asyncio.to_thread(waiting.wait, 10)
    with pytest.raises(ToolError, match=f"{type(error).__name__}: 3"):
        await asyncio.wait_for(in_own_thread(lambda: run_sync(fail())), 10)
    ended.set()
    assert await asyncio.wait_for(other, 10)


def test_a_sync_call_from_inside_is_refused_not_deadlocked() -> None:
    async def inside() -> None:
        run_sync(double(1))

    with pytest.raises(ConfigError, match="await its async version"):
        run_sync(inside())


INTERRUPTED = """
import asyncio, sys
from memagent.threads import run_sync

async def work():
    print("working", flush=True)
    try:
        await asyncio.sleep(60)
    finally:
        await asyncio.sleep(0.2)
        print("cleaned up", flush=True)

try:
    run_sync(work())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_cancels_the_work_and_waits_for_its_cleanup() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "working\n"
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == "cleaned up\ninterrupted\n"


def test_whatever_interrupts_the_caller_stops_the_work() -> None:
    ticks = list[float]()

    async def work() -> None:
        while True:
            ticks.append(time.monotonic())
            await asyncio.sleep(0.01)

    def ring(number: int, frame: object) -> None:
        raise TimeoutError("too slow")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(TimeoutError, match="too slow"):
            run_sync(work())
    finally:
        signal.signal(signal.SIGALRM, before)
    count = len(ticks)
    assert count > 0
    time.sleep(0.1)
    assert len(ticks) == count


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_the_work_is_handed_over_stops_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    submit = asyncio.run_coroutine_threadsafe

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    def interrupted(*handed: Any) -> Any:
        submit(*handed)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_sync(work())
    assert ended.is_set()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_sync_calls_work_after_a_fork() -> None:
    assert run_sync(double(1)) == 2
    code = (
        "import os\nfrom memagent.threads import run_sync\n"
        "async def one(): return 1\n"
        "run_sync(one())\npid = os.fork()\n"
        "if pid == 0: os._exit(0 if run_sync(one()) == 1 else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=20, check=False).returncode == 0
