"""The filter that every document's text passes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.documents.base import PIECE_CHARS
from memagent.documents.pieces import Pieces
from memagent.errors import DecodingError, EmptyDocument


def cut(*parts: str) -> list[str]:
    pieces = Pieces("doc")
    return [p for part in parts for p in pieces.feed(part)] + list(pieces.close())


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
