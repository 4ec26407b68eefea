import asyncio
from typing import Any

import pytest

from memagent.models.perloop import PerLoop


async def get(holder: PerLoop[Any]) -> tuple[object, object]:
    return holder.get(), holder.get()


def test_each_loop_has_its_own_value() -> None:
    holder = PerLoop(object)
    first, again = asyncio.run(get(holder))
    assert first is again
    other, _ = asyncio.run(get(holder))
    assert other is not first


def test_closed_loops_are_dropped_though_their_values_hold_them() -> None:
    holder = PerLoop(asyncio.get_running_loop)
    for _ in range(5):
        asyncio.run(get(holder))
    (only,) = holder.take_all()
    assert only[0] is only[1]
    assert holder.take_all() == []


def test_without_a_loop() -> None:
    with pytest.raises(RuntimeError):
        PerLoop(object).get()
