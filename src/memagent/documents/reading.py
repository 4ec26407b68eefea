"""One reading of a source: items (str or bytes, as the source gives them) -> checked pieces of text."""

from __future__ import annotations

from collections.abc import Generator
from typing import cast

from memagent.documents.base import PIECE_CHARS
from memagent.documents.decoding import Decoder
from memagent.documents.gunzip import BLOCK_BYTES, MAGIC, Gunzip
from memagent.documents.pieces import Pieces
from memagent.errors import DocumentError


class Reading:
    """Push filter: gunzip where needed, decode, cut into pieces. Holds a block and a piece at most.

    Args:
        name: what the document is called, for messages.
        encoding: of bytes, or None to find it out.
        errors: of bytes: "strict", "replace" or "ignore".
    """

    def __init__(self, name: str, encoding: str | None, errors: str) -> None:
        self._name = name
        self._pieces = Pieces(name)
        self._decoder = Decoder(name, encoding, errors)
        self._kind: type[str] | type[bytes] | None = None
        self._head = b""  # until it is known whether the data is gzip
        self._sniffed = False
        self._gunzip: Gunzip | None = None

    def feed(self, item: object) -> Generator[str]:
        """Yields the pieces that `item` completes.

        Raises:
            DocumentError: the item is neither str nor bytes, or the two are mixed; and as decoding does.
        """
        if isinstance(item, str):
            self._expect(str)
            for at in range(0, len(item), PIECE_CHARS):
                yield from self._pieces.feed(item[at : at + PIECE_CHARS])
            return
        if not isinstance(item, (bytes, bytearray, memoryview)):
            raise DocumentError(
                f"{self._name!r} gave {item!r:.80} of type {type(item).__name__}; "
                f"a document's items are str or bytes"
            )
        self._expect(bytes)
        view = flat(cast("bytes", item))
        for at in range(0, len(view), BLOCK_BYTES):
            yield from self._raw(bytes(view[at : at + BLOCK_BYTES]))

    def close(self) -> Generator[str]:
        """Yields the rest; raises for truncated, undecodable and empty documents."""
        if self._kind is bytes:
            if not self._sniffed:
                yield from self._sniff()
            if self._gunzip is not None:
                self._gunzip.close()
            for text in self._decoder.close():
                yield from self._pieces.feed(text)
        yield from self._pieces.close()

    def _expect(self, kind: type[str] | type[bytes]) -> None:
        if self._kind not in (None, kind):
            raise DocumentError(
                f"{self._name!r} gave both str and bytes; a document is one or the other"
            )
        self._kind = kind

    def _raw(self, data: bytes) -> Generator[str]:
        if self._sniffed:
            yield from self._plain(data)
            return
        self._head += data
        if len(self._head) >= len(MAGIC):
            yield from self._sniff()

    def _sniff(self) -> Generator[str]:
        head, self._head, self._sniffed = self._head, b"", True
        if head.startswith(MAGIC):
            self._gunzip = Gunzip(self._name)
        yield from self._plain(head)

    def _plain(self, data: bytes) -> Generator[str]:
        for block in self._gunzip.feed(data) if self._gunzip else (data,):
            for text in self._decoder.feed(block):
                yield from self._pieces.feed(text)


def flat(data: bytes | bytearray | memoryview[int]) -> memoryview[int]:
    """A view of single bytes on any bytes-like object, without a copy where that is possible."""
    view = memoryview(data)
    return view.cast("B") if view.contiguous and view.nbytes else memoryview(view.tobytes())
