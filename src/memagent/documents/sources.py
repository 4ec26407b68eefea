"""The kinds of source, and `open_document`, which tells them apart."""

from __future__ import annotations

import asyncio
import os
import re
import stat
import warnings
from abc import ABC, abstractmethod
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
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from memagent.documents.base import PIECE_CHARS, Document
from memagent.documents.decoding import check_options
from memagent.documents.gunzip import BLOCK_BYTES
from memagent.documents.pieces import check_piece, empty_document
from memagent.documents.reading import Reading, flat
from memagent.documents.threaded import threaded
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
"""What can be read: a `str` is text (never a path), a `Path` a file (`~` is the home folder)."""

_ACCEPTED = (
    "str (the text itself), pathlib.Path, bytes, an open file, an iterable or async iterable of str or "
    "bytes, or a Document"
)
_LONGEST_PATH = 4096
"""PATH_MAX of Linux."""
_INLINE_ITEM = 4096
"""Items of an async source up to this length are decoded on the event loop: a thread costs more."""


def open_document(
    source: Source,
    *,
    encoding: str | None = None,
    errors: str = "strict",
    name: str | None = None,
) -> Document:
    """Makes a document of a source. Opens nothing yet, but looks whether a path can be a document.

    Plain text and gzip are read. A path's metadata is asked for here, which blocks: async code calls this
    in a thread.

    Args:
        source: the text or where it comes from; a Document is returned as it is. A `str` of one line that names a file
            or a URL is text too, with a `UserWarning` when it is read.
        encoding: of bytes sources; None finds it out (byte order mark, UTF-8, else a guess with a warning).
        errors: of bytes sources: "strict", "replace" (U+FFFD for bad bytes) or "ignore".
        name: what messages and records call it, instead of its path or kind; half surrogate pairs in it, as
            paths of undecodable bytes have them, are escaped.

    Raises:
        DocumentError: the source is none of the accepted types.
        DocumentNotFound: the path is missing or a directory.
        ConfigError: the encoding or the error mode does not exist.
    """
    check_options(encoding, errors)
    given = cast("object", source)
    if isinstance(given, str):
        return TextSource(given, name or "<text>")
    if isinstance(given, (bytes, bytearray, memoryview)):
        return BytesSource(flat(cast("bytes", given)), name or "<bytes>", encoding, errors)
    if isinstance(given, os.PathLike):
        return FileSource(os.fsdecode(cast("os.PathLike[str]", given)), name, encoding, errors)
    if callable(getattr(given, "pieces", None)):
        return cast("Document", given)
    if hasattr(given, "__aiter__"):
        stream = cast("AsyncIterable[object]", given)
        return AsyncSource(stream, name or "<async stream>", encoding, errors)
    if callable(getattr(given, "read", None)):
        return OpenFileSource(cast("IO[Any]", given), name, encoding, errors)
    if isinstance(source, Iterable) and not isinstance(source, (Mapping, Set)):
        items = cast("Iterable[object]", given)
        return IterableSource(items, name or "<stream>", encoding, errors)
    raise DocumentError(
        f"a document cannot be made of {given!r:.80} (type {type(given).__name__}); accepted are {_ACCEPTED}"
    )


def _warn_of_a_place(text: str) -> None:
    """Warns where a text is the name of a file or a URL, which somebody meant to have read."""
    if re.fullmatch(r"https?://\S+", text.strip()):
        advice = "nothing is fetched from a URL: download it, and give its text or a Path"
    elif os.path.isfile(os.path.expanduser(text)):  # noqa: PTH111, PTH113 - these raise for no text
        advice = f"there is a file of that name: give Path({text!r}) to read it"
    else:
        return
    warnings.warn(f"the document {text!r} is read as the text itself; {advice}", stacklevel=2)


class _Source(ABC):
    """What the sources that can be read without an event loop share."""

    path: str | None = None
    size: int | None = None
    rereadable: bool = True

    def __init__(self, name: str, encoding: str | None, errors: str) -> None:
        self.name = _shown(name)
        self._encoding = encoding
        self._errors = errors
        self._begun = False

    @property
    def options(self) -> dict[str, str | None]:
        """How to open it again alike: the keyword arguments that `open_document` got."""
        return {"encoding": self._encoding, "errors": self._errors}

    @abstractmethod
    def _items(self) -> Generator[object]:
        """The source's str or bytes, in order, as they come."""

    def read(self) -> Generator[str]:
        """What `pieces` gives, without an event loop; blocks while the source does."""
        if self._begun and not self.rereadable:
            raise DocumentError(
                f"{self.name!r} is a stream, which can be read once; hand in a new one, or a path"
            )
        self._begun = True
        reading = Reading(self.name, self._encoding, self._errors)
        with closing(self._items()) as items:
            for item in items:
                yield from reading.feed(item)
        yield from reading.close()

    async def pieces(self) -> AsyncGenerator[str]:
        """The text in order; see `Document.pieces`."""
        async with aclosing(threaded(self.read())) as pieces:
            async for piece in pieces:
                yield piece


class TextSource:
    """A `str`, which needs no thread, decoding or even pieces: it is given as it is."""

    path: str | None = None
    rereadable: bool = True

    def __init__(self, text: str, name: str) -> None:
        self.name = _shown(name)
        self.size: int | None = len(text)
        self.options: dict[str, str | None] = {"encoding": None, "errors": "strict"}
        self._text = text

    async def pieces(self) -> AsyncGenerator[str]:
        """The text in order; see `Document.pieces`."""
        if len(self._text) <= _LONGEST_PATH and "\n" not in self._text:
            await asyncio.to_thread(_warn_of_a_place, self._text)
        for at in range(0, len(self._text), PIECE_CHARS):
            piece = self._text[at : at + PIECE_CHARS]
            check_piece(piece, at, self.name)
            yield piece
        if not self._text or self._text.isspace():
            raise empty_document(self.name, len(self._text))


class BytesSource(_Source):
    """Bytes in memory, plain or gzip."""

    def __init__(self, data: memoryview[int], name: str, encoding: str | None, errors: str) -> None:
        super().__init__(name, encoding, errors)
        self._data = data
        self.size = len(data)

    def _items(self) -> Generator[object]:
        yield self._data


class FileSource(_Source):
    """A file named by its path, plain or gzip."""

    def __init__(self, path: str, name: str | None, encoding: str | None, errors: str) -> None:
        super().__init__(name or path, encoding, errors)
        self._path = Path(path)
        try:
            self._path = self._path.expanduser()
            status = self._path.stat()
        except (OSError, ValueError, RuntimeError) as error:  # a NUL in the path, no such home
            raise self._not_found(error) from error
        if stat.S_ISDIR(status.st_mode):
            raise DocumentNotFound(f"{path!r} is a directory; name a file in it")
        self.path = str(self._path.absolute())  # with half surrogate pairs, or it would not open
        # Pipes and devices have no length, and what was read of them is gone.
        self.rereadable = stat.S_ISREG(status.st_mode)
        self.size = status.st_size if self.rereadable else None

    def _items(self) -> Generator[object]:
        try:
            file = self._path.open("rb", buffering=0)
        except OSError as error:
            raise self._not_found(error) from error
        with file:
            yield from _blocks(file, self.name)

    def _not_found(self, error: Exception) -> DocumentNotFound:
        why = error.strerror if isinstance(error, OSError) else str(error)
        return DocumentNotFound(
            f"{str(self._path)!r} cannot be read: {why}; check the path and its permissions"
        )


class OpenFileSource(_Source):
    """An open file, text or binary, from the position where it stands."""

    def __init__(self, file: IO[Any], name: str | None, encoding: str | None, errors: str) -> None:
        own = getattr(file, "name", None)
        super().__init__(name or (own if isinstance(own, str) else "<file>"), encoding, errors)
        self._file = file
        self._start = 0
        try:
            self.rereadable = file.seekable()
            if self.rereadable:
                self._start = file.tell()
        except (AttributeError, OSError, ValueError):
            self.rereadable = False  # reading will say it if the file is closed

    def _items(self) -> Generator[object]:
        if self.rereadable:
            try:
                self._file.seek(self._start)
            except (OSError, ValueError) as error:
                raise DocumentError(f"{self.name!r} cannot be read: {error}") from error
        yield from _blocks(self._file, self.name)


class IterableSource(_Source):
    """Text or bytes from an iterable; one that is its own iterator can be read once.

    A generator is closed when reading ends, early too; other iterators are left as they are.
    """

    def __init__(
        self, items: Iterable[object], name: str, encoding: str | None, errors: str
    ) -> None:
        super().__init__(name, encoding, errors)
        self._source = items
        self.rereadable = not isinstance(items, Iterator)

    def _items(self) -> Generator[object]:
        items = iter(self._source)
        try:
            for item in items:  # noqa: UP028 - `yield from` closes whatever has a `close`
                yield item
        finally:
            if isinstance(items, Generator):
                cast("Generator[object]", items).close()


class AsyncSource:
    """Text or bytes from an async iterable, awaited item by item.

    An async generator is closed when reading ends, early too; other iterators are left as they are.
    """

    path: str | None = None
    size: int | None = None

    def __init__(
        self, items: AsyncIterable[object], name: str, encoding: str | None, errors: str
    ) -> None:
        self.name = _shown(name)
        self.rereadable = not isinstance(items, AsyncIterator)
        self._source = items
        self._encoding = encoding
        self._errors = errors
        self._begun = False

    @property
    def options(self) -> dict[str, str | None]:
        """How to open it again alike: the keyword arguments that `open_document` got."""
        return {"encoding": self._encoding, "errors": self._errors}

    async def pieces(self) -> AsyncGenerator[str]:
        """The text in order; see `Document.pieces`."""
        if self._begun and not self.rereadable:
            raise DocumentError(
                f"{self.name!r} is an async stream, which can be read once; hand in a new one, or a path"
            )
        self._begun = True
        reading = Reading(self.name, self._encoding, self._errors)
        items = aiter(self._source)
        try:
            async for item in items:
                if isinstance(item, (str, bytes)) and len(item) <= _INLINE_ITEM:
                    for piece in reading.feed(item):
                        yield piece
                    continue
                async with aclosing(threaded(reading.feed(item))) as pieces:
                    async for piece in pieces:
                        yield piece
        finally:
            if isinstance(items, AsyncGenerator):
                await cast("AsyncGenerator[object]", items).aclose()
        async with aclosing(threaded(reading.close())) as pieces:
            async for piece in pieces:
                yield piece


def _shown(name: str) -> str:
    """The name with half surrogate pairs escaped, so that JSON, databases and terminals take it."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _blocks(file: IO[Any], name: str) -> Iterator[object]:
    """Reads a file to its end, in blocks, without changing what it gives."""
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
