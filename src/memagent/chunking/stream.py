"""Drives a chunker over a document, with or without an event loop."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator

from memagent.chunking.chunker import Chunk, Chunker
from memagent.documents.base import Document
from memagent.errors import EmptyDocument
from memagent.threads import in_thread

Pop = Callable[[], Chunk | None]
"""Cuts the next chunk; blocks."""


async def chunks(
    document: Document,
    chunker: Chunker,
    *,
    run: Callable[[Pop], Awaitable[Chunk | None]] = in_thread,
) -> AsyncGenerator[Chunk]:
    """Reads a document and yields its chunks. `run` calls the cutting, which blocks; if it raises, it may be retried.

    Raises:
        DocumentError: the document can't be read.
        RunMismatch: the chunker raised it.
    """
    pieces, blank = document.pieces(), True
    try:
        async for piece in pieces:
            blank = blank and not piece.strip()
            chunker.feed(piece)
            while chunker.ready and (chunk := await run(chunker.pop)) is not None:
                yield chunk
    finally:
        close = getattr(pieces, "aclose", None)  # async generators hold files open
        if close is not None:
            await close()
    if blank:
        raise EmptyDocument(f"{document.name!r} holds no text to read")
    chunker.close()
    while (chunk := await run(chunker.pop)) is not None:
        yield chunk


def chunk_text(pieces: Iterable[str], chunker: Chunker) -> Iterator[Chunk]:
    """Like `chunks` but without an event loop, for text in memory."""
    for piece in pieces:
        chunker.feed(piece)
        yield from iter(chunker.pop, None)
    chunker.close()
    yield from iter(chunker.pop, None)
