"""What every kind of document promises, run over all of them."""

import gzip
import io
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from memagent.documents import PIECE_CHARS, Document, open_document

TEXT = "Première ligne.\r\nВторая строка.\n三行目。 \U0001f469\u200d\U0001f469 end\r" * 3000
RAW = TEXT.encode()


async def stream(items: list[Any]) -> AsyncIterator[Any]:
    for item in items:
        yield item


def file_at(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def opened(path: Path) -> io.TextIOWrapper:
    return path.open(encoding="utf-8", newline="")


KINDS: dict[str, tuple[Callable[[Path], Any], bool]] = {
    # name: how to make the source, whether it can be read again
    "str": (lambda _: TEXT, True),
    "bytes": (lambda _: RAW, True),
    "bytearray": (lambda _: bytearray(RAW), True),
    "memoryview": (lambda _: memoryview(RAW), True),
    "gzip bytes": (lambda _: gzip.compress(RAW), True),
    "path": (lambda tmp: file_at(tmp / "a.txt", RAW), True),
    "gzip path": (lambda tmp: file_at(tmp / "a.dat", gzip.compress(RAW)), True),
    "binary file": (lambda _: io.BytesIO(RAW), True),
    "gzip binary file": (lambda _: io.BytesIO(gzip.compress(RAW)), True),
    "text file": (lambda tmp: io.StringIO(TEXT, newline=""), True),
    "list": (lambda _: [TEXT[:7], "", TEXT[7:]], True),
    "iterator of str": (lambda _: iter([TEXT[:9], TEXT[9:]]), False),
    "iterator of bytes": (lambda _: iter([RAW[:9], RAW[9:10], RAW[10:]]), False),
    "iterator of gzip": (lambda _: iter([gzip.compress(RAW)[:1], gzip.compress(RAW)[1:]]), False),
    "async str": (lambda _: stream(["", TEXT[:5], "", "", TEXT[5:]]), False),
    "async small str": (
        lambda _: stream([TEXT[i : i + 99] for i in range(0, len(TEXT), 99)]),
        False,
    ),
    "async bytes": (lambda _: stream([RAW[i : i + 999] for i in range(0, len(RAW), 999)]), False),
    "async gzip": (lambda _: stream([gzip.compress(RAW)]), False),
    "async gzip by bytes": (lambda _: stream([bytes([b]) for b in gzip.compress(RAW)]), False),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def document(kind: str, tmp_path: Path) -> Document:
    return open_document(KINDS[kind][0](tmp_path))


async def text_of(document: Document) -> list[str]:
    return [piece async for piece in document.pieces()]


async def test_the_text_comes_as_it_is_in_bounded_pieces(document: Document) -> None:
    pieces = await text_of(document)
    assert "".join(pieces) == TEXT
    assert all(1 <= len(piece) <= PIECE_CHARS for piece in pieces)


async def test_what_can_be_read_again_gives_the_same(document: Document, kind: str) -> None:
    assert document.rereadable == KINDS[kind][1]
    first = await text_of(document)
    if document.rereadable:
        assert await text_of(document) == first
    else:
        with pytest.raises(Exception, match="can be read only once"):
            await text_of(document)


async def test_an_abandoned_reading_leaves_nothing_open(document: Document) -> None:
    pieces = document.pieces()
    await anext(pieces)
    await pieces.aclose()  # type: ignore[attr-defined] # warnings (an open file) are errors
    if document.rereadable:
        assert "".join(await text_of(document)) == TEXT


def test_documents_pass_through(document: Document) -> None:
    assert open_document(document) is document


def test_names_and_sizes_are_plain(document: Document) -> None:
    assert document.name
    assert document.size is None or document.size > 0
    assert document.path is None or Path(document.path).is_absolute()
    assert document.options == {"encoding": None, "errors": "strict"}
