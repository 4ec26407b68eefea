import asyncio
import contextvars
import os
import subprocess
import sys
import threading
import time

import pytest

from memagent import threads
from memagent.threads import WORKERS, in_thread, widen


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of the test's own: what is widened stays wide."""
    monkeypatch.setattr(threads, "_pool", threads._Pool())


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


async def test_more_threads_when_asked_for(pool: None) -> None:
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


async def test_work_queued_before_there_were_more_threads_is_done(pool: None) -> None:
    gate = threading.Event()
    before = [asyncio.create_task(in_thread(gate.wait, 10)) for _ in range(2 * WORKERS + 1)]
    await asyncio.sleep(0.05)
    widen(WORKERS + 1)
    assert await in_thread(int) == 0, "the old threads are all occupied"
    assert not any(task.done() for task in before)
    gate.set()
    assert await asyncio.gather(*before) == [True] * len(before)


def test_widening_under_way_loses_no_work(pool: None) -> None:
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
