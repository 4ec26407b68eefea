"""Windows: what fits once it is neutralised and counted by itself."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.chunking.window import Window
from memagent.tokens import ByteBound, TokenizerFile

COUNTER = TokenizerFile(Path(__file__).parents[1] / "data" / "tokenizer")
TEXTS = st.lists(st.sampled_from(["<tag>", "<ta", "g>", "word ", "é", "\n"]), max_size=40).map(
    "".join
)


def defuse(text: str) -> tuple[str, Sequence[int]]:
    positions = [match.start() for match in re.finditer("<tag>", text)]
    return text.replace("<tag>", "<\u2060tag>"), positions


@given(TEXTS, st.data())
def test_prefixes_are_counted_as_they_will_be_shown(text: str, data: st.DataObject) -> None:
    window = Window(text, COUNTER, defuse)
    end = data.draw(st.integers(0, len(text)))
    safe, positions = defuse(text[:end])
    assert window.prefix(end) == (safe, len(positions), COUNTER.count(safe))


@given(TEXTS)
def test_raw_guides_are_positions_whose_safe_form_fits(text: str) -> None:
    window = Window(text, ByteBound(), defuse)
    positions = defuse(text)[1]

    def shown(chars: int) -> int:
        return len(text[:chars].encode()) + 3 * sum(position < chars for position in positions)

    for limit in range(window.prefix(len(text))[2] + 2):
        chars = window.chars_within(limit)
        assert shown(chars) <= limit
        assert chars == len(text) or shown(chars + 1) > limit


@pytest.mark.parametrize("cuts", ["sentence", "exact"])
@given(text=TEXTS, limit=st.integers(1, 40))
def test_the_end_fits_and_is_behind_the_floor(cuts: str, text: str, limit: int) -> None:
    window = Window(text + " tail of some words", COUNTER, defuse)
    bound = window.chars_within(limit)
    found = window.fit(bound, limit, cuts, 0)  # type: ignore[arg-type]
    if found is None:
        assert COUNTER.count(defuse(window.raw[:1])[0]) > limit
    else:
        assert found[0] > 0
        assert found[1:] == window.prefix(found[0])
        assert found[3] <= limit


def test_no_end_where_nothing_fits() -> None:
    window = Window("\U0001f600 and more", ByteBound(), lambda text: (text, ()))
    assert window.fit(0, 3, "exact", 0) is None
    assert window.fit(1, 4, "exact", 0) == (1, "\U0001f600", 0, 4)
