"""A blocking generator behind an event loop: it is always closed, and never twice at once."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import aclosing

import pytest

from memagent.documents import open_document
from memagent.documents.streams import pull_in_threads

LEAVE_EARLY = """
import asyncio, sys
from memagent.documents import open_document

async def main():
    async with asyncio.timeout(0.2):
        await anext(open_document(sys.stdin.buffer).pieces())

try:
    asyncio.run(main())
except TimeoutError:
    print("left")
"""


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


def test_an_event_loop_and_a_program_end_while_a_document_blocks() -> None:
    source = Source()

    async def leave() -> None:
        async with asyncio.timeout(0.1):
            async for _ in open_document(source.items()).pieces():
                pass

    start = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(leave())
    assert time.monotonic() - start < 5
    source.go_on.set()
    assert source.closed.wait(5)
    # Nobody ever writes to this pipe, and it stays open.
    command = [sys.executable, "-c", LEAVE_EARLY]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout
        assert process.stderr
        assert (process.wait(20), process.stdout.read()) == (0, "left\n"), process.stderr.read()
