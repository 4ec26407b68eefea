"""Texts that were tokenised once. That prefixes are exact is in contracts/test_token_counter.py."""

from pathlib import Path

import pytest

from memagent.tokens import TokenizerFile
from memagent.tokens.measured import ByteMeasured, OffsetMeasured

COUNTER = TokenizerFile(Path(__file__).parents[1] / "data" / "tokenizer")
PROSE = "Well, Prince, so Genoa and Lucca are now just family estates of the Buonapartes. " * 50


def test_a_prefix_costs_a_short_tail_only() -> None:
    counted: list[int] = []

    def count(text: str) -> int:
        counted.append(len(text))
        return COUNTER.count(text)

    measured = ByteMeasured(PROSE, COUNTER._lengths_of(PROSE) or [], count, 13)
    for chars in (100, 2000, len(PROSE) - 1):
        assert measured.tokens_of_prefix(chars) == COUNTER.count(PROSE[:chars])
    assert max(counted) < 60


def test_without_stable_points_the_whole_prefix_is_counted() -> None:
    text = "x" * 1000 + "日" * 1000
    measured = COUNTER.measure(text)
    for chars in (5, 1500, 1999):
        assert measured.tokens_of_prefix(chars) == COUNTER.count(text[:chars])


@pytest.mark.parametrize("text", [PROSE, "日本語のテキスト、" * 40, "👩‍👩‍👧 ok " * 30])
def test_both_forms_agree(text: str) -> None:
    by_bytes = COUNTER.measure(text)
    by_offsets = OffsetMeasured(
        text, COUNTER._tokenizer.encode(text, add_special_tokens=False), COUNTER.count, 13
    )
    assert isinstance(by_bytes, ByteMeasured)
    assert by_bytes.tokens == by_offsets.tokens
    for chars in range(0, len(text), 7):
        assert by_bytes.tokens_of_prefix(chars) == by_offsets.tokens_of_prefix(chars)
    for limit in range(0, by_bytes.tokens, 5):
        assert abs(by_bytes.chars_within(limit) - by_offsets.chars_within(limit)) <= 1


def test_edges() -> None:
    measured = COUNTER.measure("Some text.")
    assert [measured.tokens_of_prefix(n) for n in (-1, 0, 10, 99)] == [
        0,
        0,
        measured.tokens,
        measured.tokens,
    ]
    assert [measured.chars_within(n) for n in (-1, 0, 99)] == [0, 0, 10]
    assert COUNTER.measure("").tokens == 0
