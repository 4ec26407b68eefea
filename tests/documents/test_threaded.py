"""A blocking generator behind an event loop: it is always closed, and never twice at once."""

import threading
from collections.abc import Generator
from contextlib import aclosing

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
