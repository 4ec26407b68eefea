import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from memagent.errors import ConfigError
from memagent.run.sync import check_run_id, new_run_id, prefetch, run_sync, together


async def collect(stream: AsyncGenerator[Any], into: list[Any]) -> None:
    async for item in stream:
        into.append(item)


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


def test_a_sync_call_from_inside_is_refused_not_deadlocked() -> None:
    async def inside() -> None:
        run_sync(double(1))

    with pytest.raises(ConfigError, match="await its async twin"):
        run_sync(inside())


INTERRUPTED = """
import asyncio, sys
from memagent.run.sync import run_sync

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
        "import os\nfrom memagent.run.sync import run_sync\n"
        "async def one(): return 1\n"
        "run_sync(one())\npid = os.fork()\n"
        "if pid == 0: os._exit(0 if run_sync(one()) == 1 else 1)\n"
        "raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=20, check=False).returncode == 0


async def test_the_next_item_is_made_while_the_current_one_is_used() -> None:
    made = list[int]()

    async def items() -> AsyncGenerator[int]:
        for number in range(5):
            made.append(number)
            yield number

    async for number in prefetch(items()):
        await asyncio.sleep(0.01)
        assert made == list(range(min(number + 2, 5)))  # one ahead, never more


async def test_prefetch_hands_errors_on_and_closes_its_source() -> None:
    closed = list[bool]()

    async def items() -> AsyncGenerator[int]:
        try:
            yield 1
            yield 2
            raise ValueError("broken")
        finally:
            closed.append(True)

    got = list[int]()
    with pytest.raises(ValueError, match="broken"):
        await collect(prefetch(items()), got)
    assert got == [1, 2]
    stream = prefetch(items())
    assert await anext(stream) == 1
    await stream.aclose()
    assert closed == [True, True]


async def test_together_gives_results_in_order_however_they_come() -> None:
    log = list[str]()

    async def after(seconds: float, name: str) -> str:
        await asyncio.sleep(seconds)
        log.append(name)
        return name

    work = [after(0.05, "slow"), after(0, "fast"), after(0.02, "middle")]
    assert await together(work) == ["slow", "fast", "middle"]
    assert log == ["fast", "middle", "slow"]


async def test_a_single_one_needs_no_task() -> None:
    async def task() -> asyncio.Task[Any] | None:
        return asyncio.current_task()

    assert await together([task()]) == [asyncio.current_task()]


async def test_together_lets_the_others_finish_before_it_raises() -> None:
    finished = list[str]()

    async def fail(name: str) -> None:
        raise ValueError(name)

    async def work() -> None:
        await asyncio.sleep(0.02)
        finished.append("work")

    with pytest.raises(ValueError, match="first"):
        await together([work(), fail("first"), fail("second")])
    assert finished == ["work"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("number", [1, 3])
async def test_together_cancels_all_when_it_is_cancelled(number: int) -> None:
    cancelled = list[int]()

    async def work(place: int) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)
            cancelled.append(place)
            raise

    task = asyncio.create_task(together(work(place) for place in range(number)))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled == list(range(number))


@pytest.mark.parametrize("bad", ["", "a/b", "..", "a b", "ä", "x" * 65, "a\n", "-._"])
def test_run_ids_that_are_no_file_names(bad: str) -> None:
    with pytest.raises(ConfigError, match="1 to 64 letters"):
        check_run_id(bad)


def test_new_run_ids_are_valid_and_differ() -> None:
    ids = {check_run_id(new_run_id()) for _ in range(20)}
    assert len(ids) > 15
