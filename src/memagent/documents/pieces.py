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
        if self._blank:
            raise empty_document(self._name, self._given)

    def _take(self) -> str:
        piece = "".join(self._parts)
        self._parts.clear()
        self._held = 0
        check_piece(piece, self._given, self._name)
        self._given += len(piece)
        self._blank = self._blank and piece.isspace()
        return piece


def check_piece(piece: str, start: int, name: str) -> None:
    """Refuses lone surrogates, which no encoding can carry to a model.

    Args:
        piece: a part of the document.
        start: its first character's place in the document.
        name: what the document is called.

    Raises:
        DecodingError: it has one.
    """
    try:
        if not piece.isascii():
            piece.encode()
    except UnicodeEncodeError as error:
        raise DecodingError(
            f"character {start + error.start} of {name!r} is a lone surrogate "
            f"({piece[error.start]!r}), which is no text: decode the source with "
            f"errors='replace', or hand it in as bytes"
        ) from error


def empty_document(name: str, chars: int) -> EmptyDocument:
    """What to say of a document of so many characters, all of them white space."""
    if chars:
        return EmptyDocument(f"{name!r} holds only white space: there is nothing to read")
    return EmptyDocument(f"{name!r} is empty: it has no text to read")
