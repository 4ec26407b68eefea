"""gzip as a push filter."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.documents.gunzip import BLOCK_BYTES, Gunzip
from memagent.errors import DocumentError


def unpack(*parts: bytes) -> bytes:
    gunzip = Gunzip("x.gz")
    out = b"".join(block for part in parts for block in gunzip.feed(part))
    gunzip.close()
    return out


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=4), st.data())
def test_members_sliced_anywhere_give_their_content(
    members: list[bytes], data: st.DataObject
) -> None:
    packed = b"".join(gzip.compress(member) for member in members)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(packed)), max_size=5)))
    parts = [packed[a:b] for a, b in zip([0, *cuts], [*cuts, len(packed)], strict=True)]
    assert unpack(*parts) == b"".join(members)


def test_zero_padding_is_allowed_and_may_arrive_late() -> None:
    assert unpack(gzip.compress(b"text"), b"\0" * 10, b"\0\0") == b"text"
    assert unpack(gzip.compress(b"a") + b"\0" * 9 + gzip.compress(b"b")) == b"ab"


def test_output_is_bounded_whatever_a_block_expands_to() -> None:
    bomb = gzip.compress(bytes(50 * BLOCK_BYTES + 17))
    assert len(bomb) < BLOCK_BYTES
    gunzip = Gunzip("bomb.gz")
    sizes = [len(block) for block in gunzip.feed(bomb)]
    gunzip.close()
    assert sum(sizes) == 50 * BLOCK_BYTES + 17
    assert max(sizes) <= BLOCK_BYTES


@pytest.mark.parametrize("keep", [1, 5, 12, -9, -1])
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
