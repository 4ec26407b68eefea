"""Texts among units of filler: in order, each where its cut says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_bench.placement import Placement

UNITS = ["one.", "two.", "three.", "four."]
CUTS = st.lists(st.integers(0, len(UNITS)), min_size=1, max_size=4).map(sorted)


@pytest.mark.parametrize("joiner", [" ", "\n\n"])
@given(cuts=CUTS)
def test_spans_are_those_of_the_texts_and_the_rest_is_the_filler(
    joiner: str, cuts: list[int]
) -> None:
    texts = [f"Fact{i}!" for i in range(len(cuts))]
    placed = Placement(UNITS, texts, cuts)
    text, spans = placed.join(joiner)
    assert [text[start:end] for start, end in spans] == texts
    parts = text.split(joiner)
    assert [part for part in parts if part not in texts] == UNITS
    assert [parts.index(fact) - i for i, fact in enumerate(texts)] == cuts
    assert (placed.first, placed.last) == (parts[0], parts[-1])
