import time

import pytest

from memagent_engines.extractive_score import clip, sentences, stem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Mr. Brown met J. R. Smith. He left.", ["Mr. Brown met J. R. Smith.", "He left."]),
        ("“Go!” “No,” she said.", ["“Go!”", "“No,” she said."]),
        ("It cost 3.5 pounds... no more.", ["It cost 3.5 pounds... no more."]),
        ("hard\nwrapped\n  line\n\nnext", ["hard wrapped line", "next"]),
        ("他来了。她走了！", ["他来了。", "她走了！"]),
        ("", []),
        (
            "1. He left.\n\nIV. She slept. 5.\n\n- 2. Eat",
            ["1. He left.", "IV. She slept.", "5.", "- 2. Eat"],
        ),
        (" \n \n ", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.parametrize(
    "forms",
    [
        "marry married marries marriage Marrying",
        "Natasha Natásha NATASHA Natasha's Natásha’s",
        "wound wounded wounds",
        "die died dies death",
        "promote promotion promoted",
        "engage engaged engagement",
        "stop stopped stopping stops",
        "fight fought fights",
        "child children",
        "battle battles",
    ],
)
def test_forms_of_a_word_share_a_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


def test_different_words_do_not() -> None:
    words = [
        "marry",
        "mark",
        "general",
        "moth",
        "mother",
        "sing",
        "song",
        "bus",
        "bath",
        "battle",
        "bed",
    ]
    assert len({stem(word) for word in words}) == len(words)


@pytest.mark.parametrize(
    ("text", "limit", "kept"),
    [
        ("one two three", 20, "one two three"),
        ("one two three", 9, "one two"),
        ("one two three", 7, "one two"),
        ("onetwothree", 5, "onetw"),
        ("ééé ééé", 9, "ééé"),
        ("ééé", 3, "é"),
        ("abc", 0, ""),
        ("abc", -4, ""),
    ],
)
def test_clip(text: str, limit: int, kept: str) -> None:
    assert clip(text, limit) == kept
    assert len(kept.encode()) <= max(limit, 0)


@pytest.mark.parametrize(
    "text", ["." * 200_000, "a'" * 100_000, "\n " * 100_000, "A. " * 60_000, ". ”" * 60_000]
)
def test_splitting_is_linear(text: str) -> None:
    start = time.process_time()
    sentences(text)
    assert time.process_time() - start < 2
