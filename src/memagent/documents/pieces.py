"""The filter that every document's text passes: even pieces, no lone surrogates, not empty."""

from __future__ import annotations

from collections.abc import Iterator

from memagent.documents.base import PIECE_CHARS
from memagent.errors import DecodingError, EmptyDocument


class Pieces:
    """Cuts text into pieces of `PIECE_CHARS` characters (the last one is shorter), and checks it.

    Args:
        name: what the document is called, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._parts: list[str] = []
        self._held = 0
        self._given = 0
        self._blank = True

    def feed(self, text: str) -> Iterator[str]:
        """Yields the pieces that are full.

        Raises:
            DecodingError: the text has a lone surrogate, which no encoding can carry to a model.
        """
        at = 0
        while self._held + len(text) - at >= PIECE_CHARS:
            room = PIECE_CHARS - self._held
            self._parts.append(text[at : at + room])
            at += room
            yield self._take()
        if at < len(text):
            self._parts.append(text[at:])
            self._held += len(text) - at

    def close(self) -> Iterator[str]:
        """Yields the last piece.

        Raises:
            EmptyDocument: no character came, or nothing but white space.
        """
        if self._held:
            yield self._take()
        if not self._given:
            raise EmptyDocument(f"{self._name!r} is empty: it has no text to read")
        if self._blank:
            raise EmptyDocument(f"{self._name!r} holds only white space: there is nothing to read")

    def _take(self) -> str:
        piece = "".join(self._parts)
        self._parts.clear()
        self._held = 0
        if not piece.isascii():
            try:
                piece.encode()
            except UnicodeEncodeError as error:
                raise DecodingError(
                    f"character {self._given + error.start} of {self._name!r} is a lone surrogate "
                    f"({piece[error.start]!r}), which is no text: decode the source with "
                    f"errors='replace', or hand it in as bytes"
                ) from error
        self._given += len(piece)
        self._blank = self._blank and piece.isspace()
        return piece
