"""Texts that are over their tokens are cut where it hurts least."""

from pathlib import Path

import pytest

from memagent.chunking.cuts import grapheme_floor
from memagent.chunking.fitting import ends, within
from memagent.tokens import TokenCounter, load_counter
from memagent.tokens.byte_bound import ByteBound

COUNTERS: dict[str, TokenCounter] = {
    "bytes": ByteBound(),
    "bpe": load_counter(Path(__file__).parents[1] / "data/tokenizer"),
}
TEXTS = {
    "prose": "The prince left for Moscow. It was winter! " * 60,
    "words": "one two three " * 100,
    "digits": "1234567890" * 100,
    "cjk": "\u4e2d\u6587\u3002" * 200,
    "clusters": "\U0001f468\u200d\U0001f469\u200d\U0001f467" * 60,
    "combining": "e\u0301" * 300,
}


@pytest.mark.parametrize("limit", [1, 7, 50, 333])
@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("text", TEXTS)
def test_what_is_kept_fits_and_is_a_beginning(text: str, counter: str, limit: int) -> None:
    whole, count = TEXTS[text], COUNTERS[counter]
    kept, tokens, before = within(whole, limit, count)
    assert whole.startswith(kept)
    assert tokens == count.count(kept) <= limit
    assert before == count.count(whole)


def test_a_sentence_end_is_preferred_but_not_one_far_back() -> None:
    assert within("One two. Three four. Five", 22, ByteBound())[0] == "One two. Three four."
    assert within("One. " + "two " * 20, 60, ByteBound())[0].endswith("two")
    assert within("One two. Three", 99, ByteBound(), cut_off=True)[0] == "One two."
    assert within("One two. Three", 99, ByteBound())[0] == "One two. Three"


@pytest.mark.parametrize("tail", [True, False], ids=["ends", "head"])
@pytest.mark.parametrize("limit", [0, 1, 2, 9, 60, 300])
@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("text", TEXTS)
def test_both_ends_fit_together(text: str, counter: str, limit: int, tail: bool) -> None:
    whole, count = TEXTS[text], COUNTERS[counter]
    if count.count(whole) <= limit:
        return
    first, last = ends(whole, limit, count, tail=tail)
    assert 0 <= first <= last <= len(whole)
    assert count.count(whole[:first]) + count.count(whole[last:]) <= limit
    assert grapheme_floor(whole, first) == first
    assert grapheme_floor(whole, last) == last
    if not tail:
        assert last == len(whole)
    if limit >= 60:
        assert count.count(whole[:first]) + count.count(whole[last:]) >= limit // 2
