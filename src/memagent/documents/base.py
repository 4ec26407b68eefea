"""A document: a source of text, read as a stream."""

from collections.abc import AsyncIterator
from typing import Protocol

PIECE_CHARS = 65536
"""Maximum characters in one piece of a stream: Python's cost per piece and its memory are both negligible."""


class Document(Protocol):
    """A source of text. Memory used does not depend on its length."""

    @property
    def name(self) -> str:
        """Its display name: a path, `<text>`, `<stdin>`. Free of lone surrogates."""
        ...

    @property
    def path(self) -> str | None:
        """Absolute path if the source is a file that a resumed run can reopen, else None."""
        ...

    @property
    def size(self) -> int | None:
        """Bytes (of the file as stored) or characters (of a str), for progress bars only; None for streams."""
        ...

    @property
    def rereadable(self) -> bool:
        """False for iterators and pipes, which can be read once."""
        ...

    @property
    def options(self) -> dict[str, str | None]:
        """How to reopen it the same way: the keyword arguments `encoding` and `errors` of `open_document`."""
        ...

    def pieces(self) -> AsyncIterator[str]:
        """Yields the text in order, in pieces of 1 to `PIECE_CHARS` characters; blocking reads happen in threads.

        Raises:
            DocumentError: missing, binary, undecodable (with the byte's offset), truncated gzip.
        """
        ...
