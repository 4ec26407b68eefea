"""Chunks of documents, with an event loop and without."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from memagent.chunking import Chunker, ResumePoint, chunk_text, chunks
from memagent.documents import open_document
from memagent.documents.streams import IterableSource
from memagent.errors import DecodingError, EmptyDocument, RunMismatch
from memagent.tokens import ByteBound, TokenizerFile
from memagent.tokens.base import Measured

COUNTER = TokenizerFile(Path(__file__).parents[1] / "data" / "tokenizer")
TEXT = "A sentence of words. Another one!\n\nA new paragraph, longer than those. " * 3000


async def test_both_drivers_give_the_same() -> None:
    expected = list(chunk_text([TEXT], Chunker(COUNTER, 300)))
    for source in (TEXT, TEXT.encode(), iter([TEXT[:11], TEXT[11:]])):
        async with aclosing(chunks(open_document(source), Chunker(COUNTER, 300))) as stream:
            assert [chunk async for chunk in stream] == expected


async def test_errors_of_the_document_and_of_a_resume_pass_through() -> None:
    with pytest.raises(EmptyDocument):
        await anext(chunks(open_document("  \n"), Chunker(COUNTER, 300)))
    first = next(chunk_text([TEXT], Chunker(COUNTER, 300)))
    with pytest.raises(RunMismatch):
        await anext(
            chunks(open_document("Other"), Chunker(COUNTER, 300, resume=ResumePoint.after(first)))
        )
    bad = b"Good text. " * 20_000 + b"\xff"
    seen: list[int] = []

    async def read() -> None:
        async for chunk in chunks(open_document(bad), Chunker(COUNTER, 300)):
            seen.append(chunk.index)

    with pytest.raises(DecodingError):
        await read()
    assert seen  # what came before the bad byte


@pytest.mark.parametrize("pieces", [[], [" ", "\n"]])
async def test_a_document_of_another_class_may_be_empty_too(pieces: list[str]) -> None:
    class Own(IterableSource):
        async def pieces(self) -> AsyncGenerator[str]:
            for piece in pieces:
                yield piece

    with pytest.raises(EmptyDocument, match="'mine'"):
        await anext(chunks(Own((), "mine", None, "strict"), Chunker(COUNTER, 300)))


async def test_a_document_is_read_no_further_than_it_is_needed(tmp_path: Path) -> None:
    fed = 0

    def lines() -> Iterator[str]:
        nonlocal fed
        for _ in range(1000):
            fed += 1
            yield "A line of the document.\n" * 1000

    async with aclosing(chunks(open_document(lines()), Chunker(COUNTER, 300))) as stream:
        await anext(stream)
    assert fed < 10


class Slow(ByteBound):
    def measure(self, text: str) -> Measured:  # type: ignore[override]
        time.sleep(0.2)
        return super().measure(text)


async def test_the_loop_runs_while_a_chunk_is_tokenised() -> None:
    stream = chunks(open_document("Some words. " * 100), Chunker(Slow(), 500))
    task = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
    ticks = 0
    while not task.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 5
    await stream.aclose()
