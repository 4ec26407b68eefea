"""Raw items of a source -> checked pieces of text: decompressed, decoded, evenly sized, non-empty, no lone surrogates.

Each filter is a generator over the one before. For an empty item it yields what it has ready, then an empty one,
so that a source that must be awaited can be awaited between two items.
"""

import zlib
from collections.abc import Generator, Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar, cast

from memagent.documents.base import PIECE_CHARS
from memagent.documents.decoding import decode
from memagent.errors import DecodingError, DocumentError, EmptyDocument

BLOCK_BYTES = 65536
"""Maximum bytes at once: a block that expands a thousandfold must not fill the memory."""
T = TypeVar("T", str, bytes)
_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # zlib's code for "expect a gzip header and check its CRC"


def text_of(
    items: Iterable[object], name: str, encoding: str | None, errors: str
) -> Generator[str]:
    """Turns str or bytes of any length into pieces of `PIECE_CHARS` characters; the last may be shorter.

    Raises:
        DocumentError: an item is neither str nor bytes, the two are mixed, or a filter raised it.
    """
    items = iter(items)
    first = next(items, "")
    items = chain([first], items)
    if isinstance(first, str):
        texts = parts(items, str, name)
    else:
        texts = decode(gunzip(parts(items, bytes, name), name), name, encoding, errors)
    yield from check(_even(texts), name)


def parts(items: Iterable[object], kind: type[T], name: str) -> Generator[T]:
    """Yields the items, which must all be of one kind, in parts of bounded length."""
    for item in items:
        if not isinstance(item, (str, bytes, bytearray, memoryview)):
            raise DocumentError(
                f"{name!r} yielded {item!r:.80} of type {type(item).__name__}; items must be str or bytes"
            )
        if isinstance(item, str) != (kind is str):
            raise DocumentError(f"{name!r} yielded both str and bytes; use one or the other")
        data = cast("Any", item)
        if not isinstance(item, str):
            view = memoryview(data)
            # Any memory layout is read as single bytes, without a copy if possible.
            data = view.cast("B") if view.contiguous and view.nbytes else view.tobytes()
        for at in range(0, len(data) or 1, BLOCK_BYTES):
            yield kind(data[at : at + BLOCK_BYTES])


def check(pieces: Iterable[str], name: str) -> Generator[str]:
    """Passes pieces through; refuses lone surrogates, which no encoding can carry to a model, and empty texts."""
    offset, blank = 0, True
    for piece in pieces:
        try:
            if not piece.isascii():
                piece.encode()
        except UnicodeEncodeError as error:
            raise DecodingError(
                f"character {offset + error.start} of {name!r} is a lone surrogate ({piece[error.start]!r}), which is "
                f"not text: decode the source with errors='replace', or pass it as bytes"
            ) from error
        offset += len(piece)
        blank = blank and not piece.strip()
        yield piece
    if blank:
        fault = "holds only white space: there is nothing" if offset else "is empty: it has no text"
        raise EmptyDocument(f"{name!r} {fault} to read")


def gunzip(blocks: Iterator[bytes], name: str) -> Generator[bytes]:
    """Passes plain data through; decompresses gzip data of one or more members, as `gzip -d` would.

    Zero bytes after the last member are padding (tapes and some tools write them); anything else
    there is an error, because text would be lost silently.
    """
    data = b""
    for block in blocks:
        data += block
        if len(data) >= len(_MAGIC):
            break
        if not block:
            yield b""
    blocks = chain([data], blocks)
    if not data.startswith(_MAGIC):
        yield from blocks
        return
    member, ended, data = zlib.decompressobj(_GZIP_WINDOW), False, b""
    for block in blocks:
        data += block
        full = False  # zlib may hold output although it has taken all the input
        while data or full:
            if ended:  # the next byte that is not zero has to begin another member
                data = data.lstrip(b"\0")
                if len(data) < len(_MAGIC):
                    break
                if not data.startswith(_MAGIC):
                    raise DocumentError(
                        f"{name!r} has non-gzip data after its gzip data: "
                        f"the file is damaged, or two files were joined; compress it again"
                    )
                member = zlib.decompressobj(_GZIP_WINDOW)
            try:
                output = member.decompress(data, BLOCK_BYTES)
            except zlib.error as error:
                raise DocumentError(
                    f"{name!r} is corrupt gzip data ({error}); fetch or compress it again"
                ) from error
            if output:
                yield output
            ended = member.eof
            data = member.unused_data if ended else member.unconsumed_tail
            full = len(output) == BLOCK_BYTES and not ended
        if not block:
            yield b""
    if not ended or data:
        raise DocumentError(
            f"{name!r} is truncated gzip data: it ends before its last member does; fetch or compress it again"
        )


def _even(texts: Iterable[str]) -> Generator[str]:
    """Yields pieces of maximum length, then the remainder."""
    buffer: list[str] = []
    chars = 0
    for text in texts:
        at = 0
        while chars + len(text) - at >= PIECE_CHARS:
            end = at + PIECE_CHARS - chars
            yield "".join([*buffer, text[at:end]])
            buffer.clear()
            at, chars = end, 0
        buffer.append(text[at:])
        chars += len(text) - at
        if not text:
            yield ""
    yield "".join(buffer)
