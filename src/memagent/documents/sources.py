"""The kinds of source, and `open_document`, which picks one."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import warnings
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Set,
)
from contextlib import aclosing, closing
from itertools import takewhile
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from memagent.documents.base import Document
from memagent.documents.decoding import check_options
from memagent.documents.filters import BLOCK_BYTES, check, parts, text_of
from memagent.documents.threaded import pull_in_threads
from memagent.errors import DecodingError, DocumentError, DocumentNotFound

Source: TypeAlias = (
    str
    | os.PathLike[str]
    | bytes
    | bytearray
    | memoryview
    | IO[str]
    | IO[bytes]
    | Iterable[str]
    | Iterable[bytes]
    | AsyncIterable[str]
    | AsyncIterable[bytes]
    | Document
)
"""Accepted sources: a `str` is text (never a path), a `Path` a file (`~` is the home folder)."""

_LONGEST_PATH = 4096
"""PATH_MAX of Linux."""
_INLINE_ITEM = 4096
"""Items of an async source up to this length are decoded on the event loop: a thread would cost more."""


def open_document(
    source: Source,
    *,
    encoding: str | None = None,
    errors: str = "strict",
    name: str | None = None,
) -> Document:
    """Makes a document from a source. Opens nothing yet, but checks that a path can be a document.

    Plain text and gzip are supported. Checking a path's metadata blocks, so async code should call this
    in a thread.

    Args:
        source: the text or where it comes from; a Document is returned unchanged. A one-line `str` that names a file
            or a URL is still text, but gives a `UserWarning` when read.
        encoding: for sources of bytes; None detects it (byte order mark, UTF-8, else a guess with a warning).
        errors: for sources of bytes: "strict", "replace" (U+FFFD for bad bytes) or "ignore".
        name: display name for messages and records, instead of the path or kind; lone surrogates, as in
            paths with undecodable bytes, are escaped.

    Raises:
        DocumentError: the source has an unsupported type.
        DocumentNotFound: the path is missing or a directory.
        ConfigError: the encoding or the error mode does not exist.
    """
    check_options(encoding, errors)
    given = cast("object", source)
    if isinstance(given, str):
        return TextSource((given,), name or "<text>", None, "strict", len(given))
    if isinstance(given, (bytes, bytearray, memoryview)):
        size = memoryview(cast("bytes", given)).nbytes
        return IterableSource((given,), name or "<bytes>", encoding, errors, size)
    if isinstance(given, os.PathLike):
        return FileSource(os.fsdecode(cast("os.PathLike[str]", given)), name, encoding, errors)
    if callable(getattr(given, "pieces", None)):
        return cast("Document", given)
    if hasattr(given, "__aiter__"):
        return AsyncSource(given, name or "<async stream>", encoding, errors)
    if callable(getattr(given, "read", None)):
        return OpenFileSource(given, name, encoding, errors)
    if isinstance(source, Iterable) and not isinstance(source, (Mapping, Set)):
        return IterableSource(given, name or "<stream>", encoding, errors)
    raise DocumentError(
        f"a document cannot be made of {given!r:.80} (type {type(given).__name__}); accepted are str (the text "
        f"itself), pathlib.Path, bytes, an open file, an iterable or async iterable of str or bytes, or a Document"
    )


def _warn_of_a_place(text: str) -> None:
    """Warns if a text is a file name or a URL, which was probably meant to be read."""
    if re.fullmatch(r"https?://\S+", text.strip()):
        advice = "memagent doesn't fetch URLs: download it, and pass its text or a Path"
    elif os.path.isfile(os.path.expanduser(text)):  # noqa: PTH111, PTH113 - these raise for no text
        advice = f"there is a file of that name: pass Path({text!r}) to read it"
    else:
        return
    message = f"the document {text!r} is taken as the text itself; {advice}"
    # It is read in a thread, whose stack doesn't include the caller's line.
    warnings.warn_explicit(message, UserWarning, "memagent", 1)


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

    async def pieces(self) -> AsyncGenerator[str]:
        """The text in order; see `Document.pieces`."""
        async with aclosing(pull_in_threads(self.read())) as pieces:
            async for piece in pieces:
                yield piece

    def _items(self) -> Generator[object]:
        """The source's str or bytes, in order."""
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
        """The text in order; see `Document.pieces`."""
        (text,) = self._source
        if len(text) <= _LONGEST_PATH and "\n" not in text:
            await asyncio.to_thread(_warn_of_a_place, text)
        for piece in check(parts(self._source, str, self.name), self.name):
            yield piece


class FileSource(IterableSource):
    """A file named by its path, plain or gzip."""

    def __init__(self, path: str, name: str | None, encoding: str | None, errors: str) -> None:
        super().__init__(Path(path), name or path, encoding, errors)
        try:
            self._source = self._source.expanduser()
            status = self._source.stat()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL in the path, no such home
            raise self._not_found(error) from error
        if stat.S_ISDIR(status.st_mode):
            raise DocumentNotFound(f"{path!r} is a directory; name a file in it")
        self.path = str(self._source.absolute())  # with half surrogate pairs, or it would not open
        # Pipes and devices have no length, and can't be read twice.
        self.rereadable = stat.S_ISREG(status.st_mode)
        self.size = status.st_size if self.rereadable else None

    def _items(self) -> Generator[object]:
        try:
            file = self._source.open("rb", buffering=0)
        except OSError as error:
            raise self._not_found(error) from error
        with file:
            yield from _blocks(file, self.name)

    def _not_found(self, error: Exception) -> DocumentNotFound:
        why = error.strerror if isinstance(error, OSError) else str(error)
        advice = "check the path and its permissions"
        if str(self._source).startswith(("http:/", "https:/")):
            advice = "memagent doesn't download documents: fetch the file first, and give its path"
        return DocumentNotFound(f"{str(self._source)!r} cannot be read: {why}; {advice}")


class OpenFileSource(IterableSource):
    """An open file, text or binary, from its current position."""

    def __init__(self, file: Any, name: str | None, encoding: str | None, errors: str) -> None:
        file_name = getattr(file, "name", None)
        name = name or (file_name if isinstance(file_name, str) else "<file>")
        super().__init__(file, name, encoding, errors)
        try:
            self._start = file.tell() if file.seekable() else None
        except (AttributeError, OSError, ValueError):
            self._start = None  # reading will say it if the file is closed
        self.rereadable = self._start is not None

    def _items(self) -> Generator[object]:
        if self._start is not None:
            try:
                self._source.seek(self._start)
            except (OSError, ValueError) as error:
                raise DocumentError(f"{self.name!r} cannot be read: {error}") from error
        yield from _blocks(self._source, self.name)


class AsyncSource(IterableSource):
    """Text or bytes from an async iterable, awaited item by item.

    An async generator is closed when reading ends, even early; other iterators are left alone.
    """

    async def pieces(self) -> AsyncGenerator[str]:
        """The text in order; see `Document.pieces`."""
        item: Any = ""
        ended = False

        def items_so_far() -> Generator[object]:
            while not ended:
                current = item
                yield current
                if current:
                    yield current[:0]  # the filters give what they have, and wait

        text = self._text(items_so_far())
        items = aiter(self._source)
        try:
            async for item in items:
                if isinstance(item, (str, bytes)) and len(item) <= _INLINE_ITEM:
                    for piece in takewhile(bool, text):
                        yield piece
                    continue
                ready = (piece for piece in takewhile(bool, text))
                async with aclosing(pull_in_threads(ready)) as pieces:
                    async for piece in pieces:
                        yield piece
        finally:
            if isinstance(items, AsyncGenerator):
                await cast("AsyncGenerator[object]", items).aclose()
        ended = True
        async with aclosing(pull_in_threads(text)) as pieces:
            async for piece in pieces:
                if piece:
                    yield piece


def _blocks(file: IO[Any], name: str) -> Iterator[object]:
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
