"""A blocking generator behind an event loop: it is always closed, and never twice at once."""

import asyncio
import threading
from collections.abc import Generator
from contextlib import aclosing

import pytest

from memagent.documents.streams import pull_in_threads


class Source:
    """A generator that waits for permission before its second item."""

    def __init__(self) -> None:
        self.go_on, self.closed = threading.Event(), threading.Event()
        self.threads: list[str] = []

    def items(self) -> Generator[str]:
        try:
            self.threads.append(threading.current_thread().name)
            yield "a"
            self.go_on.wait(10)
            yield "b"
        finally:
            self.threads.append(threading.current_thread().name)
            self.closed.set()


async def test_items_come_in_order_from_other_threads() -> None:
    source = Source()
    source.go_on.set()
    assert [item async for item in pull_in_threads(source.items())] == ["a", "b"]
    assert source.closed.is_set()
    assert threading.current_thread().name not in source.threads


async def test_closing_early_closes_the_generator_in_a_thread() -> None:
    source = Source()
    async with aclosing(pull_in_threads(source.items())) as items:
        assert await anext(items) == "a"
    assert source.closed.is_set()
    assert source.threads[-1] != threading.current_thread().name


async def test_closing_before_the_first_item_starts_nothing() -> None:
    source = Source()
    await pull_in_threads(source.items()).aclose()
    assert source.threads == []


async def test_a_thread_that_is_inside_closes_it_when_it_comes_out() -> None:
    source = Source()
    generator = source.items()
    items = pull_in_threads(generator)
    await anext(items)
    waiting = asyncio.ensure_future(anext(items))  # type: ignore[arg-type]
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting  # at once, though the thread waits on
    assert not source.closed.is_set()
    source.go_on.set()
    assert await asyncio.to_thread(source.closed.wait, 5)
    assert next(generator, None) is None


async def test_the_generators_own_error_comes_through() -> None:
    def broken() -> Generator[str]:
        yield "a"
        raise ZeroDivisionError

    items = pull_in_threads(broken())
    assert await anext(items) == "a"
    with pytest.raises(ZeroDivisionError):
        await anext(items)
