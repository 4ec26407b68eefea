"""Sentences, and which of them match a question."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bench.systems.benches import FILLER, NEEDLE, QUESTION, haystack

from memagent_bench.systems import ranking
from memagent_bench.systems.ranking import LONGEST, by_bm25, by_terms, sentences, terms

UUID = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed"


def shown(text: str, spans: list[tuple[int, int]]) -> list[str]:
    return [text[start:end] for start, end in spans]


def test_sentences_and_lines() -> None:
    text = "The prince left early. Did he\nwalk away? “No!” said\n\nMr. Rostov rode off.\n- a list\n- of lines\n"
    assert shown(text, list(sentences(text))) == [
        "The prince left early.",
        "Did he\nwalk away? “No!” said",
        "Mr. Rostov rode off.",
        "- a list",
        "- of lines",
    ]


@given(st.text(st.sampled_from("ab .!?\n\t。”")) | st.text())
def test_sentences_cover_everything_but_white_space(text: str) -> None:
    spans = list(sentences(text))
    assert all(0 < end - start <= LONGEST for start, end in spans)
    assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    kept = "".join(text[start:end] for start, end in spans)
    assert "".join(kept.split()) == "".join(text.split())


def test_long_lines_are_cut_between_words() -> None:
    text = "word " * 1000
    assert {text[start:end].replace("word", "").strip() for start, end in sentences(text)} == {""}
    assert len(list(sentences("x" * 1000))) == 3


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (QUESTION, ["upbeat-pizza"]),
        (f"What is the special magic uuid for {UUID}?", [UUID]),
        ("Find all variables that are assigned the value 12345 in the text.", ["12345"]),
        ("Which magazine was started first, Arthur's Magazine or First for Women?",
         ["arthur", "magazine", "first", "women"]),
        ('Who said "give me the book" to VAR_X?', ["give me the book", "var_x"]),
        ("Who said 'enough' and didn't stay?", ["enough"]),
        ("what did the old prince say?", ["prince"]),
        ("Where are they?", []),
        ("???", []),
    ],
)  # fmt: skip
def test_terms(question: str, expected: list[str]) -> None:
    assert terms(question) == expected


@pytest.mark.parametrize("rank", [by_terms, by_bm25])
def test_the_needle_comes_first(rank: ranking.Rank) -> None:
    for at in (0.0, 0.3, 1.0):
        text = haystack(at=at)
        assert shown(text, rank(text, QUESTION, 3))[0] == NEEDLE


def test_more_different_terms_count_more_than_one_often() -> None:
    text = "Anna saw Anna and Anna there. Anna met Boris yesterday. Boris left in the night."
    best = shown(text, by_terms(text, "Did Anna know Boris?", 9))
    assert best[0] == "Anna met Boris yesterday."
    assert best[1:] == ["Anna saw Anna and Anna there.", "Boris left in the night."]


def test_terms_are_whole_words_in_any_case() -> None:
    text = "The number 123456 is another one.\nIt is 12345 here.\nUPBEAT-PIZZA stands here."
    assert shown(text, by_terms(text, "Where is 12345?", 9)) == ["It is 12345 here."]
    assert shown(text, by_terms(text, "upbeat-pizza?", 9)) == ["UPBEAT-PIZZA stands here."]


def test_no_more_than_asked_for() -> None:
    text = f"{NEEDLE}\n" * 50
    assert len(by_terms(text, QUESTION, 7)) == len(by_bm25(text, QUESTION, 7)) == 7


def test_bm25_prefers_rare_words_and_stems() -> None:
    text = FILLER * 20 + "He marries her at last. The sky was marrow. " + FILLER * 20
    assert shown(text, by_bm25(text, "When is the sky married?", 1)) == ["He marries her at last."]


@pytest.mark.parametrize(
    "question",
    [
        '"',
        "NEAR(a b) OR *",
        'a"b AND NOT c^2',
        "col:umn -x",
        "\0",
        " ".join(f"w{n}" for n in range(3000)),
        "日本 ꯍ",
    ],
)
def test_bm25_takes_any_question(question: str) -> None:
    text = "Some text with w17 in it, column x, a and b. 日本 is there\0too."
    by_bm25(text, question, 5)
    by_terms(text, question, 5)


@given(text=st.text(), question=st.text())
def test_ranks_are_places_of_the_text(text: str, question: str) -> None:
    text, question = (part.encode(errors="replace").decode() for part in (text, question))
    places = set(sentences(text))
    for rank in (by_terms, by_bm25):
        best = rank(text, question, 10)
        assert set(best) <= places
        assert len(set(best)) == len(best) <= 10


@pytest.mark.parametrize(
    "text", ["." * 200_000, "\n" * 200_000, "x" * 200_000, '."' * 100_000, "A. " * 70_000]
)
def test_monotonous_texts_take_linear_time(text: str) -> None:
    assert all(end - start <= LONGEST for start, end in sentences(text))
    by_terms(text, "Anna-Maria 12?", 5)
