"""Names, numbers and sentences of the notes: what is held out is so for good, and is never trained on."""

import re
from random import Random

import pytest

from memagent.errors import ConfigError
from memagent_bench.notes.vocabulary import (
    COINS,
    HELD_OUT,
    MASTER,
    MORE,
    PAIR,
    SIGN,
    TRAINED,
    Vocabulary,
    Wording,
)

NUMBERS = ["11", "18", "25", "32", "39", "46", "53", "60", "67", "74", "81", "88", "95"]
"""Of two digits, held out."""
DRAWN = ["Lemadu", "Dirape", "1614", "163809fa", "Fuduku", "Renumi", "5919"]
"""Names, number and sign that trainings may show, then names and number held out."""
BOTH = pytest.mark.parametrize("syllables", [2, 3])


def all_numbers(words: Vocabulary) -> set[str]:
    rng = Random(0)
    return {words.number(rng) for _ in range(5000)}


def test_numbers_are_divided_as_ever() -> None:
    held, trained = all_numbers(Vocabulary(held_out=True)), all_numbers(Vocabulary())
    assert sorted(held) == NUMBERS, "policies were trained on the others"
    assert trained == {str(number) for number in range(10, 100)} - held


def test_longer_numbers_are_divided_too() -> None:
    held, trained = all_numbers(Vocabulary(3, 4, held_out=True)), all_numbers(Vocabulary(3, 4))
    assert held & trained == set()
    for numbers in (held, trained):
        assert all(re.fullmatch(r"[1-9]\d{3}", number) for number in numbers)
        # No digit tells whether a number is held out.
        for place in range(4):
            assert len({number[place] for number in numbers}) == (10 if place else 9)


@BOTH
def test_names_are_divided(syllables: int) -> None:
    held = set(Vocabulary(syllables, held_out=True).names(800, Random(0)))
    trained = set(Vocabulary(syllables).names(3000, Random(0)))
    assert (len(held), len(trained)) == (800, 3000)
    assert held & trained == set()
    shape = f"(?=[A-Z])(?:[bdfgklmnprstvz][aeiou]){{{syllables}}}"
    for names in (held, trained):
        assert all(re.fullmatch(shape, name, re.IGNORECASE) for name in names)
        for place in range(2 * syllables):
            letters = {name[place].lower() for name in names}
            assert letters == set("aeiou" if place % 2 else "bdfgklmnprstvz")


def test_draws_are_the_same_as_ever() -> None:
    rng = Random(7)
    words, held = Vocabulary(3, 4), Vocabulary(3, 4, held_out=True)
    drawn = [*words.names(2, rng), words.number(rng), words.sign(rng)]
    drawn += [*held.names(2, rng), held.number(rng)]
    assert drawn == DRAWN


def test_a_sign_is_hexadecimal_and_longer_than_a_number() -> None:
    rng = Random(0)
    signs = [Vocabulary(3, 4).sign(rng) for _ in range(100)]
    assert all(re.fullmatch("[0-9a-f]{8}", sign) for sign in signs)
    assert len(set(signs)) == 100


@pytest.mark.parametrize(
    ("syllables", "digits", "named"),
    [(1, 4, "syllables=1"), (3, 0, "digits=0"), (3, -3, "digits=-3")],
)
def test_too_short_words_are_refused(syllables: int, digits: int, named: str) -> None:
    with pytest.raises(ConfigError, match=f"^{named} leaves too few to draw; give at least 2$"):
        Vocabulary(syllables, digits)


@pytest.mark.parametrize("wording", [TRAINED, HELD_OUT], ids=lambda w: w.label)
def test_each_wording_says_and_asks_everything(wording: Wording) -> None:
    assert set(wording.notes) == {COINS, MASTER, MORE, SIGN}
    assert set(wording.questions) == {COINS, MASTER, SIGN, PAIR}
    for kind, sentences in wording.notes.items():
        assert sentences
        for sentence in sentences:
            wanted = ["{who}"] if kind == MORE else ["{what}", "{who}"]
            assert sorted(re.findall(r"{\w+}", sentence)) == wanted
            assert sentence.endswith(".")
            assert sentence.count(".") == 1, "solvers and chunkers see one sentence"
    for kind, questions in wording.questions.items():
        assert questions
        for question in questions:
            wanted = ["{other}", "{who}"] if kind == PAIR else ["{who}"]
            assert sorted(re.findall(r"{\w+}", question)) == wanted
            assert question.endswith("?")


def test_wordings_share_no_template() -> None:
    trained, held = templates(TRAINED), templates(HELD_OUT)
    assert set(trained) & set(held) == set()
    for one in held:
        assert not [other for other in trained if one in other or other in one]


def test_each_held_out_sentence_has_a_word_of_its_own() -> None:
    known = {word for template in templates(TRAINED) for word in template.split()}
    for template in templates(HELD_OUT):
        assert set(template.split()) - known, template


def templates(wording: Wording) -> list[str]:
    """Its sentences and questions in small letters, with a gap for each name and value, without signs."""
    found = [s for parts in (wording.notes, wording.questions) for k in parts.values() for s in k]
    gaps = [re.sub(r"{\w+}", "_", sentence.lower()) for sentence in found]
    return [re.sub(r"[^\w ]", "", sentence) for sentence in gaps]
