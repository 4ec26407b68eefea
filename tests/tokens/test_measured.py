"""Texts that were tokenised once. That prefixes are exact is in contracts/test_token_counter.py."""

import re
from pathlib import Path

from memagent.tokens import TokenizerFile
from memagent.tokens.measured import MeasuredText

COUNTER = TokenizerFile(Path(__file__).parents[1] / "data" / "tokenizer")
PROSE = "Well, Prince, so Genoa and Lucca are now just family estates of the Buonapartes. " * 50


def test_a_text_is_tokenised_little_more_than_once_and_as_far_as_it_is_cut() -> None:
    taken: list[int] = []

    def encode(text: str) -> list[str]:
        taken.append(len(text))
        return re.findall(r" ?\w+|\W", text)

    def cut(_: str, words: list[str], limit: int) -> int:
        return len("".join(words[:limit]))

    words = len(encode(PROSE))
    taken.clear()
    half = MeasuredText(PROSE, encode, cut, local=True)
    chars = half.chars_within(words * 3 // 4)
    assert half.tokens_of_prefix(chars) == words * 3 // 4
    assert chars <= sum(taken) < chars + 2 * 128
    taken.clear()
    longer = PROSE[chars - 400 :] + PROSE
    rest = half.rest(chars - 400, longer).tokens
    assert sum(taken) < len(longer) - 200
    assert rest == len(encode(longer))


def test_without_stable_points_the_whole_prefix_is_counted() -> None:
    text = "x" * 1000 + "日" * 1000
    measured = COUNTER.measure(text)
    for chars in (5, 1500, 1999):
        assert measured.tokens_of_prefix(chars) == COUNTER.count(text[:chars])


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
