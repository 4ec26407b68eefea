"""One reading: items of any size and kind -> checked pieces."""

import gzip
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.documents.reading import Reading, flat
from memagent.errors import DocumentError, EmptyDocument

TEXT = "Wörter, 言葉, слова.\r\n" * 30


def read(items: Sequence[object]) -> str:
    reading = Reading("doc", None, "strict")
    return "".join(
        [piece for item in items for piece in reading.feed(item)] + list(reading.close())
    )


def sliced(data: bytes, cuts: list[int]) -> list[bytes]:
    cuts = sorted(min(cut, len(data)) for cut in cuts)
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(st.lists(st.integers(0, 800), max_size=8))
def test_bytes_sliced_anywhere_plain_or_gzip(cuts: list[int]) -> None:
    raw = TEXT.encode()
    assert read(sliced(raw, cuts)) == TEXT
    packed = gzip.compress(raw[:100]) + gzip.compress(raw[100:])
    assert read(sliced(packed, cuts)) == TEXT


def test_str_items_keep_everything() -> None:
    assert read(["\ufeffa\r\n", "", "b\x00\u2028"]) == "\ufeffa\r\nb\x00\u2028"


def test_items_of_the_wrong_or_of_both_kinds_are_refused() -> None:
    with pytest.raises(DocumentError, match=r"type int"):
        read(["a", 3])
    with pytest.raises(DocumentError, match="both str and bytes"):
        read(["a", b"b"])
    with pytest.raises(DocumentError, match="both str and bytes"):
        read([b"a", "b"])


@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_no_characters_at_all_is_empty(data: bytes) -> None:
    with pytest.raises(EmptyDocument):
        read([data])


def test_a_single_byte_is_a_document() -> None:
    assert read([b"a"]) == "a"


def test_flat_sees_single_bytes_of_any_layout() -> None:
    assert bytes(flat(bytearray(b"abc"))) == b"abc"
    assert bytes(flat(memoryview(b"abcdef")[::2])) == b"ace"
    assert len(flat(memoryview(b"abcdefgh").cast("I"))) == 8
    assert len(flat(b"")) == 0
