"""A document: a source of text, read as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

PIECE_CHARS = 65536
"""Most characters in one piece of a stream: large enough that Python's cost a piece vanishes, small enough to be nothing in memory."""


class Document(Protocol):
    """A source of text. Memory used does not depend on its length."""

    @property
    def name(self) -> str:
        """What people call it: a path, `<text>`, `<stdin>`."""
        ...

    @property
    def path(self) -> str | None:
        """Absolute path where the source is a file that a resume can open again, else None."""
        ...

    @property
    def size(self) -> int | None:
        """Length in bytes (of the file as stored) or characters (of a str), None for streams: for progress bars only."""
        ...

    @property
    def rereadable(self) -> bool:
        """False for iterators and pipes, which can be read once."""
        ...

    def pieces(self) -> AsyncIterator[str]:
        """The text in order, in pieces of 1 to `PIECE_CHARS` characters; blocking reads happen in threads.

        Raises:
            DocumentError: missing, binary, undecodable (with the byte's offset), truncated gzip.
        """
        ...
