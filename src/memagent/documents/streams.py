"""Documents that come from memory, an open file, or an iterator."""

import asyncio
import os
import re
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator
from contextlib import aclosing, closing, suppress
from itertools import takewhile
from typing import IO, Any, cast

from memagent.documents.filters import BLOCK_BYTES, check, parts, text_of
from memagent.errors import DecodingError, DocumentError
from memagent.texts import expand
from memagent.threads import in_own_thread

END_SECONDS = 0.3
"""Seconds to wait for the end of another reading of the same open file."""
_LONGEST_PATH = 4096
"""Maximum characters of a path: PATH_MAX of Linux."""
_INLINE_ITEM = 4096
"""Items of an async source up to this length are decoded on the event loop: a thread would cost more."""


class IterableSource:
    """Text or bytes from an iterable; an iterator can be read only once.

    A generator is closed when reading ends, even early; other iterators are left alone.
    """

    path: str | None = None

    def __init__(
        self, source: Any, name: str, encoding: str | None, errors: str, size: int | None = None
    ) -> None:
        # Lone surrogates are escaped, so that JSON, databases and terminals accept the name.
        self.name = name.encode("utf-8", "backslashreplace").decode("utf-8")
        self.size = size
        self.rereadable = not isinstance(source, (Iterator, AsyncIterator))
        self.options: dict[str, str | None] = {"encoding": encoding, "errors": errors}
        self._decoding = encoding, errors
        self._source = source
        self._begun = False

    def read(self) -> Generator[str]:
        """Like `pieces`, without an event loop; blocks while the source does."""
        with closing(self._items()) as items:
            yield from filter(None, self._text(items))

    def pieces(self) -> AsyncGenerator[str]:
        """Yields the text in order; see `Document.pieces`."""
        return pull_in_threads(self.read())

    def _items(self) -> Generator[object]:
        """Yields the source's str or bytes, in order."""
        # Not for a tuple: the endpoint passes messages in one, and they may well name files.
        for text in self._source[:3] if type(cast("object", self._source)) is list else ():
            _warn_of_a_place(text)
        items = iter(self._source)
        try:
            for item in items:  # noqa: UP028 - `yield from` closes whatever has a `close`
                yield item
        finally:
            if isinstance(items, Generator):
                cast("Generator[object]", items).close()

    def _text(self, items: Iterable[object]) -> Generator[str]:
        if self._begun and not self.rereadable:
            raise DocumentError(
                f"{self.name!r} is a stream, which can be read only once; pass a new one, or a path"
            )
        self._begun = True
        return text_of(items, self.name, *self._decoding)


class TextSource(IterableSource):
    """A `str`, which needs no thread, decoding or splitting."""

    async def pieces(self) -> AsyncGenerator[str]:
        """Yields the text in order; see `Document.pieces`."""
        (text,) = self._source
        if len(text) <= _LONGEST_PATH:
            await asyncio.to_thread(_warn_of_a_place, text)
        for piece in check(parts(self._source, str, self.name), self.name):
            yield piece


class OpenFileSource(IterableSource):
    """An open file, text or binary, from its current position, to which a reading returns it if it can seek."""

    mutex, being_read = threading.Condition(), set[int]()
    """The ids of all open files that are being read: a file has one position, which a second reading would move."""

    def __init__(self, file: Any, name: str | None, encoding: str | None, errors: str) -> None:
        file_name = getattr(file, "name", None)
        name = name or (file_name if isinstance(file_name, str) else "<file>")
        super().__init__(file, name, encoding, errors)
        # Python aborts if it closes this at exit while a thread reads its buffer.
        self._wrapper = sys.stdin
        self._start: int | None = None
        """Where the first reading began."""
        try:
            self.rereadable = file.seekable() and file.tell() >= 0
        except (AttributeError, OSError, ValueError):
            self.rereadable = False  # reading reports it if the file is closed

    def _items(self) -> Generator[object]:
        with self.mutex:
            # A reading that was cancelled may be about to end.
            if not self.mutex.wait_for(
                lambda: id(self._source) not in self.being_read, END_SECONDS
            ):
                remedy = "wait, or open it once more"
                raise DocumentError(f"{self.name!r} is being read already: {remedy}")
            self.being_read.add(id(self._source))
        try:
            self._rewind()
            yield from blocks(self._source, self.name)
        finally:
            with suppress(DocumentError):  # the caller may have closed it
                self._rewind()
            with self.mutex:
                self.being_read.discard(id(self._source))
                self.mutex.notify_all()

    def _rewind(self) -> None:
        if self.rereadable:
            try:
                if self._start is None:
                    self._start = self._source.tell()
                self._source.seek(self._start)
            except (OSError, ValueError) as error:
                raise DocumentError(f"{self.name!r} cannot be read: {error}") from error


class AsyncSource(IterableSource):
    """Text or bytes from an async iterable, awaited item by item.

    An async generator is closed when reading ends, even early; other iterators are left alone.
    """

    async def pieces(self) -> AsyncGenerator[str]:
        """Yields the text in order; see `Document.pieces`."""
        item: Any = ""
        ended = False

        def items_so_far() -> Generator[object]:
            while not ended:
                current = item
                yield current
                if current:
                    yield current[:0]  # makes the filters yield what they have, and wait

        text = self._text(items_so_far())
        items = aiter(self._source)
        try:
            async for item in items:
                if isinstance(item, (str, bytes)) and len(item) <= _INLINE_ITEM:
                    for piece in takewhile(bool, text):
                        yield piece
                    continue
                async with aclosing(pull_in_threads(p for p in takewhile(bool, text))) as pieces:
                    async for piece in pieces:
                        yield piece
        finally:
            if isinstance(items, AsyncGenerator):
                await cast("AsyncGenerator[object]", items).aclose()
        ended = True
        async with aclosing(pull_in_threads(p for p in text if p)) as pieces:
            async for piece in pieces:
                yield piece


def _warn_of_a_place(text: object) -> None:
    """Warns if a text is a file name or a URL, which was probably meant to be read."""
    if not isinstance(text, str) or len(text) > _LONGEST_PATH or "\n" in text:
        return
    if re.fullmatch(r"https?://\S+", text.strip()):
        advice = "memagent doesn't fetch URLs: download it, and pass its text or a Path"
    elif os.path.isfile(expand(text) if text[:1] == "~" else text):  # noqa: PTH113 - pathlib raises for no path
        advice = f"there is a file of that name: pass Path({text!r}) to read it"
    else:
        return
    message = f"the document {text!r} is taken as the text itself; {advice}"
    # It is read in a thread, whose stack doesn't include the caller's line.
    warnings.warn_explicit(message, UserWarning, "memagent", 1)


def blocks(file: IO[Any], name: str) -> Iterator[object]:
    """Reads a file to its end in blocks, unchanged."""
    while True:
        try:
            block = file.read(BLOCK_BYTES)
        except UnicodeDecodeError as error:
            raise DecodingError(
                f"{name!r} was opened as text and does not decode as {error.encoding!r} "
                f"({error.reason}); open it in binary mode, or with another encoding"
            ) from error
        except (OSError, ValueError) as error:  # io.UnsupportedOperation is both
            raise DocumentError(f"{name!r} cannot be read: {error}") from error
        if block is None:
            raise DocumentError(f"{name!r} is in non-blocking mode; open it in blocking mode")
        if not block:
            return
        yield block


async def pull_in_threads(pieces: Generator[str]) -> AsyncGenerator[str]:
    """Takes one piece at a time from a blocking generator, each in a thread, and always closes it at the end.

    On cancellation it doesn't wait for the thread, which may read a pipe forever: the thread then closes the
    generator as soon as the read returns. Nor does the end of the program wait for it.
    """
    lock = threading.Lock()  # whoever holds it runs the generator
    is_over = False

    def step() -> str | None:
        with lock:
            piece = None if is_over else next(pieces, None)
        if is_over:
            close()
        return piece

    def close() -> None:
        # If the lock is held, the thread of a cancelled step has it, and closes the generator after releasing it.
        if lock.acquire(blocking=False):
            try:
                pieces.close()
            finally:
                lock.release()

    try:
        while (piece := await in_own_thread(step)) is not None:
            yield piece
    finally:
        is_over = True
        await in_own_thread(close)
