import pytest

from memagent.cli.needle import BOOK_TOKENS, Length, hide

CHARS = 3_208_235
"""Of the book."""


@pytest.mark.parametrize("length", [Length.K16, Length.M1])
def test_a_text_has_its_length_and_the_fact_once(length: Length) -> None:
    needle = hide(length, seed=1)
    wanted = length.tokens * CHARS / BOOK_TOKENS
    assert len(needle.text) == pytest.approx(wanted, abs=100)
    assert needle.text.count(needle.fact) == 1
    assert needle.text[needle.place :].startswith(needle.fact)
    assert needle.text[needle.place - 2 : needle.place] == "\n\n"
    assert 0.09 < needle.place / len(needle.text) < 0.95
    assert str(needle.count) in needle.fact
    who = needle.question.split()[-1].rstrip("?")
    assert f"of {who} holds" in needle.fact


def test_a_seed_says_what_is_hidden_and_where() -> None:
    assert hide(Length.K16, 4) == hide(Length.K16, 4)
    needles = [hide(Length.K16, seed) for seed in range(8)]
    assert len({needle.place for needle in needles}) == 8
    assert len({needle.fact for needle in needles}) > 4
    assert len({needle.text[:60] for needle in needles}) > 4


def test_lengths_are_in_tokens() -> None:
    assert [length.tokens for length in Length] == [2**14, 2**16, 2**18, 2**20]


def test_an_answer_is_right_if_it_says_the_number_alone() -> None:
    needle = hide(Length.K16, 0)
    count, other = str(needle.count), str(needle.count + 1)
    for right in (count, f"He has {count} coins.", f"{count}, yes {count}"):
        assert needle.is_right(right)
    for wrong in (None, "", "none", other, f"{count} or {other}", f"1{count}", f"{count}0"):
        assert not needle.is_right(wrong)
