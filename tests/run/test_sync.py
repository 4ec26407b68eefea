import asyncio
from collections.abc import AsyncGenerator
from typing import Any, cast
from uuid import UUID

import pytest

from memagent.errors import ConfigError
from memagent.run.sync import check_run_id, new_run_id, prefetch, together


async def collect(stream: AsyncGenerator[Any], into: list[Any]) -> None:
    async for item in stream:
        into.append(item)


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


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


def test_a_run_id_may_be_a_uuid_or_a_number() -> None:
    uuid = UUID(int=1)
    assert [check_run_id(cast("Any", name)) for name in (uuid, 7)] == [str(uuid), "7"]


def test_new_run_ids_are_valid_and_differ() -> None:
    ids = {check_run_id(new_run_id()) for _ in range(20)}
    assert len(ids) > 15
