"""Scores against values worked by hand, and what holds for every one of them."""

from decimal import Decimal
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.errors import ConfigError
from memagent.tasks import SCORERS, scores
from memagent.tasks.scores import numbers, squad

EVERY = pytest.mark.parametrize("name", SCORERS)
WORDS = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: text.strip() != "")
PLAIN_WORDS = st.lists(
    st.sampled_from(["prince", "war", "moscow", "1813", "red", "house", "two"]), min_size=1
)


def test_ruler_by_hand() -> None:
    match_all, match_part = scores.string_match_all, scores.string_match_part
    references = ["8231974", "1045522", "7700318", "3319077"]
    assert match_all("The numbers are 8231974, 7700318 and 1045521.", references) == 0.5
    assert match_all(", ".join(references), references) == 1
    assert match_part("1045522", references) == 1
    assert match_part("1045521", references) == 0
    assert match_all("TOLSTOY wrote it", ["tolstoy", "Tolstoy"]) == 1
    # A mean of containments, so part of a longer number counts, as published.
    assert match_all("182319745", ["8231974"]) == 1


def test_ruler_makes_control_characters_line_feeds() -> None:
    assert scores.string_match_part("war\x00peace", ["war\npeace"]) == 1
    assert scores.string_match_part("war\tpeace", ["war peace"]) == 0


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("The answer is Pierre Bezukhov.", "Pierre Bezukhov", 1),
        ("Pierre", "Pierre Bezukhov", 1),  # the other way round: very lenient
        ("Pierre Kirilovich", "Pierre Bezukhov", 0),
        ("the PIERRE!", "pierre", 1),
        ("", "Pierre", 0),
        ("  \n", "Pierre", 0),
        ("I know.", "no", 1),  # characters, not words, as published
        ("Yes!", "yes", 1),
        ("yes", "no", 0),
        ("in 1955", "5", 1),
        ("5", "1955", 1),
        ("\uff11\uff19\uff15\uff15", "1955", 0),
    ],
)
def test_sub_exact_match_by_hand(answer: str, reference: str, score: float) -> None:
    assert scores.sub_exact_match(answer, [reference]) == score


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Prince, and a (red) House!", "prince and red house"),
        ("An apple-tree", "appletree"),
        ("theatre", "theatre"),
        ("A", "a"),  # articles alone stay
        ("The The", "the the"),
        ("?!", "?!"),
        ("", ""),
        ("Straße “x”", "straße “x”"),  # ASCII punctuation only, as published
    ],
)
def test_squads_normalisation_by_hand(text: str, normal: str) -> None:
    assert squad(text) == normal


def test_exact_match_and_f1_by_hand() -> None:
    assert scores.exact_match("the House of Lords.", ["Commons", "House of Lords"]) == 1
    assert scores.exact_match("House of Lords today", ["House of Lords"]) == 0
    # 3 of 4 answer words, 3 of 3 reference words: 2 * 0.75 * 1 / 1.75.
    assert scores.f1("house of lords today", ["House of Lords"]) == pytest.approx(6 / 7)
    # Each word as often as both have it: 1 shared, of 3 and of 2.
    assert scores.f1("red red red", ["red house"]) == pytest.approx(0.4)
    assert scores.f1("Moscow", ["Paris", "old Moscow"]) == pytest.approx(2 / 3)
    assert scores.f1("Moscow", ["Paris"]) == 0


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("1,000", "1000.0", 1),
        ("3.0", "30", 0),
        ("−5", "-5", 1),
        ("12.", "12", 1),
        ("the Red House", "red house", 1),
        ("red houses", "red house", 0),
        ("12 men", "12", 0),
        # Marks around a number are no part of its value, but signs and points are.
        ("$1,000", "1000", 1),
        ("1000", "$1,000.00", 1),
        ("(5)", "5", 1),
        ("50 %", "50", 1),
        ('"5"', "5", 1),
        ("**42**", "42", 1),
        ("__-42__", "-42", 1),
        # Articles are dropped, as from other texts.
        ("The 5", "5", 1),
        ("5", "a 5.", 1),
        ("5a", "5", 0),
        ("a-5", "-5", 0),
        ("-$5", "5", 0),
        (".5", "5", 0),
        ("1.000.000", "1", 0),
        ("5²", "5", 0),
        ("5-10", "5", 0),
    ],
)
def test_equivalence_by_hand(answer: str, reference: str, score: float) -> None:
    assert scores.equivalent(answer, ["nothing like it", reference]) == score


def test_sets_by_hand() -> None:
    gold = ["Pierre", "Natasha", "Andrew", "Mary"]
    assert scores.set_recall("Natasha, the Pierre and Anatole", gold) == 0.5
    assert scores.set_precision("Natasha, the Pierre and Anatole", gold) == pytest.approx(2 / 3)
    assert scores.set_recall("1. Mary\n2) Andrew\n- Natasha\n• Pierre.", gold) == 1
    assert scores.set_recall("Mary, Mary; mary", gold) == 0.25
    assert scores.set_precision("Mary, Mary; mary", gold) == 1
    assert scores.set_precision("", gold) == 0
    # Members are whole: a name inside a sentence is not listed.
    assert scores.set_recall("I think that it was Mary", gold) == 0
    # Both sides are divided alike.
    assert scores.set_recall("War and Peace, Childhood", ["War and Peace", "Childhood"]) == 1
    assert scores.set_recall("1,234, 56", ["1,234", "56"]) == 1
    assert scores.set_recall("and", ["and"]) == 1


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("-5", ["5"]),
        ("10.0", ["100"]),
        ("2.5", ["25"]),
        ("3.5, 20", ["35", "20"]),
        ("3:30", ["330"]),
        ("12.07.2020", ["12072020"]),
    ],
)
def test_signs_and_points_of_members_count(answer: str, gold: list[str]) -> None:
    assert scores.set_recall(answer, gold) < 1
    assert scores.set_recall(", ".join(gold), [answer]) < 1
    assert scores.set_precision(answer, gold) < 1


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("- 5\n2) the **25**.\n• $1,000", ["5", "25", "1000"]),
        ("1. 10.0; 2. -5", ["10", "-5"]),
        ("3:30 and 12.07.2020.", ["12.07.2020", "3:30"]),
        ("The Mary; a PIERRE!", ["Mary", "Pierre"]),
    ],
)
def test_marks_around_members_do_not_count(answer: str, gold: list[str]) -> None:
    assert scores.set_recall(answer, gold) == 1
    assert scores.set_precision(answer, gold) == 1


@pytest.mark.parametrize(
    ("answer", "reference", "score"),
    [
        ("12", "12", 1),
        ("Of 40 entries, 12 are herons.", "12", 1),
        ("12 of 40", "12", 0),  # the last one counts
        ("112", "12", 0),
        ("12.5", "12", 0),
        ("12.0", "12", 1),
        ("1,204", "1204", 1),
        ("3,4", "4", 1),
        ("-7", "7", 0),
        ("a12", "12", 0),
        ("row_12", "12", 0),
        ("Of 40, __12__ are herons.", "12", 1),
        ("twelve", "12", 0),
        ("", "12", 0),
    ],
)
def test_numbers_by_hand(answer: str, reference: str, score: float) -> None:
    assert scores.number_match(answer, [reference]) == score


def test_numbers_of_a_text() -> None:
    text = "On 1,234,567 days, -3 of 10; v2, 7.50. 12,34 and 3-4"
    found = [Decimal(n) for n in ("1234567", "-3", "10", "7.50", "12", "34", "3", "4")]
    assert numbers(text) == found


def test_a_reference_that_is_no_number_is_an_error_not_a_zero() -> None:
    for reference in ("twelve", "12 or 13"):
        with pytest.raises(ConfigError, match="needs one number"):
            scores.number_match("12", [reference])


@EVERY
@pytest.mark.parametrize("references", [[], [""], ["12", " \n"], "12"])
def test_without_references_there_is_no_score(name: str, references: list[str]) -> None:
    with pytest.raises(ConfigError, match="references="):
        SCORERS[name]("12", references)


@EVERY
@given(answer=st.text(), references=st.lists(WORDS, min_size=1, max_size=4))
def test_every_score_lies_between_0_and_1(name: str, answer: str, references: list[str]) -> None:
    references = ["12"] if name == "number_match" else [f"{text}x" for text in references]
    assert 0 <= SCORERS[name](answer, references) <= 1


@EVERY
@given(blank=st.text(" \t\n\r", max_size=3), words=PLAIN_WORDS)
def test_an_empty_answer_scores_0(name: str, blank: str, words: list[str]) -> None:
    assert SCORERS[name](blank, _references(name, words)) == 0


@EVERY
@given(words=PLAIN_WORDS)
def test_what_is_wanted_scores_1_in_any_case(name: str, words: list[str]) -> None:
    references = _references(name, words)
    all_wanted = name in {"string_match_all", "set_recall", "set_precision"}
    answer = ", ".join(references) if all_wanted else references[-1]
    assert SCORERS[name](answer.upper(), references) == 1
    assert SCORERS[name](answer, [reference.upper() for reference in references]) == 1


@EVERY
@given(words=PLAIN_WORDS, answer=PLAIN_WORDS, random=st.randoms(use_true_random=False))
def test_the_order_of_references_does_not_matter(
    name: str, words: list[str], answer: list[str], random: Random
) -> None:
    references = _references(name, words)
    shuffled = references.copy()
    random.shuffle(shuffled)
    text = " ".join(answer)
    assert SCORERS[name](text, references) == pytest.approx(SCORERS[name](text, shuffled))


@pytest.mark.parametrize("name", [name for name in SCORERS if name != "number_match"])
def test_two_ways_to_write_a_character_are_one(name: str) -> None:
    assert SCORERS[name]("Andre\u0301", ["ANDR\u00c9"]) == 1
    assert SCORERS[name]("安德烈", ["安德烈"]) == 1


def _references(name: str, words: list[str]) -> list[str]:
    return ["1813"] if name == "number_match" else words
