"""From what a source gives to checked pieces: items of any size and kind, gzip data, even pieces."""

import gzip
import zlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.documents.base import PIECE_CHARS
from memagent.documents.filters import BLOCK_BYTES, gunzip, text_of
from memagent.errors import DecodingError, DocumentError, EmptyDocument

TEXT = "Wörter, 言葉, слова.\r\n" * 30


def cut(*items: object) -> list[str]:
    return list(filter(None, text_of(items, "doc", None, "strict")))


def read(items: Sequence[object]) -> str:
    return "".join(cut(*items))


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


def test_bytes_of_any_layout_are_read_as_single_bytes() -> None:
    assert read([bytearray(b"abc"), memoryview(b"abcdef")[::2], b""]) == "abcace"
    assert read([memoryview(b"abcdefgh").cast("I")]) == "abcdefgh"


@given(st.lists(st.binary(max_size=5), max_size=20), st.booleans())
def test_after_an_empty_item_all_that_is_ready_was_given(items: list[bytes], packed: bool) -> None:
    raw = gzip.compress(b"".join(items))
    # Two bytes of chance could promise gzip data.
    items = [bytes([byte]) for byte in raw] if packed else [b"plain", *items]
    pushed = [part for item in items if item for part in (item, b"")]
    rounds = [block for block in gunzip(iter(pushed), "x") if not block]
    assert len(rounds) >= len(pushed) // 2


@given(st.lists(st.integers(0, 2 * PIECE_CHARS + 1), min_size=1, max_size=5))
def test_pieces_are_full_but_for_the_last(lengths: list[int]) -> None:
    parts = [chr(97 + i) * length for i, length in enumerate(lengths)]
    if not any(lengths):
        return
    pieces = cut(*parts)
    assert "".join(pieces) == "".join(parts)
    assert all(len(piece) == PIECE_CHARS for piece in pieces[:-1])
    assert 0 < len(pieces[-1]) <= PIECE_CHARS


def test_empty_and_white_documents_are_told_apart() -> None:
    with pytest.raises(EmptyDocument, match="is empty"):
        cut()
    with pytest.raises(EmptyDocument, match="is empty"):
        cut("", "")
    with pytest.raises(EmptyDocument, match="only white space"):
        cut(" \n\t\r\u3000", "\n" * PIECE_CHARS)
    assert cut("\n" * PIECE_CHARS, "x") == ["\n" * PIECE_CHARS, "x"]


def test_a_lone_surrogate_is_named_by_its_position() -> None:
    with pytest.raises(DecodingError, match=f"character {PIECE_CHARS + 2} ") as caught:
        cut("é" * PIECE_CHARS, "ab\ud800c")
    assert caught.value.offset is None


def unpack(*parts: bytes) -> bytes:
    return b"".join(gunzip(iter(parts), "x.gz"))


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.data())
def test_members_sliced_anywhere_give_their_content(
    members: list[bytes], data: st.DataObject
) -> None:
    packed = b"".join(gzip.compress(member) for member in members)
    cuts = data.draw(st.lists(st.integers(0, len(packed)), max_size=5))
    assert unpack(*sliced(packed, cuts)) == b"".join(members)


def test_zero_padding_is_allowed_and_may_arrive_late() -> None:
    assert unpack(gzip.compress(b"text"), b"\0" * 10, b"\0\0") == b"text"
    assert unpack(gzip.compress(b"a") + b"\0" * 9 + gzip.compress(b"b")) == b"ab"


def test_output_is_bounded_whatever_a_block_expands_to() -> None:
    bomb = gzip.compress(bytes(50 * BLOCK_BYTES + 17))
    assert len(bomb) < BLOCK_BYTES
    sizes = [len(block) for block in gunzip(iter([bomb]), "bomb.gz")]
    assert sum(sizes) == 50 * BLOCK_BYTES + 17
    assert max(sizes) <= BLOCK_BYTES


@pytest.mark.parametrize("keep", [2, 5, 12, -9, -1])
def test_truncated_data_is_an_error_that_says_so(keep: int) -> None:
    with pytest.raises(DocumentError, match="truncated"):
        unpack(gzip.compress(b"some text" * 100)[:keep])


def test_half_a_second_member_is_truncated_too() -> None:
    with pytest.raises(DocumentError, match="truncated"):
        unpack(gzip.compress(b"a") + gzip.compress(b"b")[:1])


def test_corrupt_data_is_an_error_that_says_so() -> None:
    packed = bytearray(gzip.compress(bytes(range(256)) * 20))
    packed[-6] ^= 0xFF  # the checksum
    with pytest.raises(DocumentError, match=r"corrupt.*x\.gz|x\.gz.*corrupt") as caught:
        unpack(bytes(packed))
    assert isinstance(caught.value.__cause__, zlib.error)


def test_anything_else_after_the_data_is_an_error() -> None:
    with pytest.raises(DocumentError, match="after its gzip data"):
        unpack(gzip.compress(b"a") + b"plain text")
