import asyncio
import threading
from typing import Any

import pytest

from memagent.errors import ServerBusy
from memagent.models.sharing import Once, PerLoop, once_in_thread


class Source:
    """Answers slowly, and counts how often it is asked."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self) -> object:
        self.asked += 1
        await asyncio.sleep(0.01)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_asks_once_for_all() -> None:
    source = Source("x")
    once = Once(source)
    assert await asyncio.gather(*(once.get() for _ in range(9))) == ["x"] * 9
    assert await once.get() == "x"
    assert source.asked == 1


async def test_a_failure_goes_to_all_and_is_forgotten() -> None:
    source = Source(ServerBusy("busy"), "x")
    once = Once(source)
    results = await asyncio.gather(*(once.get() for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [ServerBusy] * 3
    assert await once.get() == "x"
    assert source.asked == 2


async def test_a_waiter_takes_over_from_a_cancelled_leader() -> None:
    source = Source("x", "y")
    once = Once(source)
    leader, *waiters = [asyncio.create_task(once.get()) for _ in range(3)]
    await asyncio.sleep(0)
    leader.cancel()
    assert await asyncio.gather(*waiters) == ["x"] * 2
    with pytest.raises(asyncio.CancelledError):
        await leader
    assert source.asked == 2


async def test_a_cancelled_waiter_harms_nobody() -> None:
    once = Once(Source("x"))
    leader, waiter, other = [asyncio.create_task(once.get()) for _ in range(3)]
    await asyncio.sleep(0)
    waiter.cancel()
    assert await asyncio.gather(leader, other) == ["x"] * 2
    assert waiter.cancelled()


def test_loops_in_threads_share_the_answer() -> None:
    source = Source("x")
    once = Once(source)
    got: list[object] = []
    threads = [
        threading.Thread(target=lambda: got.append(asyncio.run(once.get()))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == ["x"] * 4
    assert source.asked == 1


# --- made in a thread


class Made:
    """Makes a value when it may, or fails; counts how often it is asked."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.asked = 0
        self.began, self.may = threading.Event(), threading.Event()

    def __call__(self) -> int:
        self.asked += 1
        self.began.set()
        self.may.wait()
        if self.failures:
            raise self.failures.pop(0)
        return self.asked


async def leave(once: Once[int], made: Made) -> None:
    """Cancels the caller that makes the value, which is made nevertheless."""
    leader = asyncio.create_task(once.get())
    await asyncio.to_thread(made.began.wait)
    leader.cancel()
    asyncio.get_running_loop().call_soon(made.may.set)
    with pytest.raises(asyncio.CancelledError):
        await leader


async def test_what_a_cancelled_caller_made_is_kept_for_waiting_and_later_ones() -> None:
    made = Made()
    once = once_in_thread(made)
    leaving = asyncio.create_task(leave(once, made))
    await asyncio.to_thread(made.began.wait)
    assert await once.get() == 1
    await leaving
    assert await once.get() == 1
    assert made.asked == 1


def test_it_is_kept_also_if_the_event_loop_ends() -> None:
    made = Made()
    once = once_in_thread(made)
    asyncio.run(leave(once, made))
    assert asyncio.run(once.get()) == 1


async def test_what_could_not_be_made_is_tried_again() -> None:
    made = Made(ServerBusy("busy"), ServerBusy("busy"))
    once = once_in_thread(made)
    await leave(once, made)
    with pytest.raises(ServerBusy):
        await once.get()
    assert await once.get() == 3


# --- one for each loop


async def got(holder: PerLoop[Any]) -> tuple[object, object]:
    return holder.get(), holder.get()


def test_each_loop_has_its_own_value() -> None:
    holder = PerLoop(object)
    first, again = asyncio.run(got(holder))
    assert first is again
    other, _ = asyncio.run(got(holder))
    assert other is not first


def test_closed_loops_are_dropped_though_their_values_hold_them() -> None:
    holder = PerLoop(asyncio.get_running_loop)
    for _ in range(5):
        asyncio.run(got(holder))
    (only,) = holder.take_all()
    assert only[0] is only[1]
    assert holder.take_all() == []


def test_without_a_loop() -> None:
    with pytest.raises(RuntimeError):
        PerLoop(object).get()
