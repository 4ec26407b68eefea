"""Which tokenisers have stable points, and where they are in a text."""

import re
import unicodedata
from itertools import takewhile
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from memagent.tokens import locality
from memagent.tokens.locality import reach, splits_at_stable_points, stable_points

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDING = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{ENDING}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{ENDING}"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
DEEPSEEK = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"gpt2": GPT2, "llama3": LLAMA3, "cl100k": CL100K, "o200k": O200K, "deepseek": DEEPSEEK}

SPACES = [" ", "  ", "\n", "\r\n", "\t"]
WORDS = ["'s", "'LL", "’t", "a", "The", "ABC", "é", "e\u0301", "x" * 9, "1", "234"]
SCRIPTS = ["你好", "か", "가", "क्", "ا", "\u0338", "\u1100", "👍"]
MARKS = list('。，,.!?"()-/')
PARTS = st.sampled_from([*SPACES, *WORDS, *SCRIPTS, *MARKS])
TEXTS = st.lists(PARTS | st.characters(exclude_categories=["Cs"]), min_size=5, max_size=40).map(
    "".join
)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_published_expressions_are_known(pattern: str) -> None:
    assert splits_at_stable_points(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\p{N}{1,3}",
        r".+",
        r"\w+|\s+",
        r" ?\p{L}+|.*",
        r"\b\w+\b| ?\p{L}+",
        r"\p{L}+\s*| ?\p{L}+",
        r" ?(\p{L}+|x)",
        O200K.partition("|")[2],
    ],
)
def test_other_expressions_are_not(pattern: str) -> None:
    assert not splits_at_stable_points(pattern)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@given(text=TEXTS, data=st.data())
def test_known_expressions_split_at_stable_points_whatever_stands_around(
    pattern: str, text: str, data: st.DataObject
) -> None:
    words = regex.compile(pattern)

    def ends(part: str) -> list[int]:
        return [match.end() for match in words.finditer(part)]

    whole = ends(text)
    for point in stable_points(text, len(text)):
        assert point in whole
        cut = data.draw(st.integers(point + 1, len(text)))
        left = list(takewhile(lambda end, p=point: end <= p, whole))
        assert ends(text[:cut]) == left + [point + end for end in ends(text[point:cut])]


@given(TEXTS, st.integers(-2, 60))
def test_points_come_from_the_right_without_a_gap(text: str, before: int) -> None:
    one = list(stable_points(text, before))
    assert one == sorted(set(one), reverse=True)
    assert one == [p for p in stable_points(text, len(text)) if p <= before]


def test_points_far_away_are_found_in_linear_steps() -> None:
    text = "end " + "x" * 100_000
    assert list(stable_points(text, len(text))) == [3]
    assert list(stable_points("x" * 100_000, 100_000)) == []


def test_letters_are_letters_and_neither_they_nor_separators_change_under_nfc() -> None:
    everything = "".join(chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000)
    letters = re.findall(f"[{locality._LETTERS}]", everything)
    separators = re.findall(f"[{locality._SEPARATORS}]", everything)
    assert len(letters) > 30_000
    assert {unicodedata.category(c)[0] for c in letters} == {"L"}
    assert not {unicodedata.category(c)[0] for c in separators} & {"L", "M", "N"}
    for c in letters + separators:
        assert unicodedata.normalize("NFC", c) == c
        assert unicodedata.combining(c) == 0
    # What could join with a separator to its left: nothing does.
    marks = list(filter(unicodedata.combining, everything))
    for separator in separators:
        assert all(unicodedata.normalize("NFC", separator + m).startswith(separator) for m in marks)


def config(**changes: Any) -> dict[str, Any]:
    split = {"type": "Split", "pattern": {"Regex": LLAMA3}, "behavior": "Isolated", "invert": False}
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    base = {
        "model": {"type": "BPE", "dropout": None},
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, level]},
        "added_tokens": [{"content": "<|im_end|>", "single_word": False, "normalized": False}],
    }
    return {**base, **changes}


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}


def test_reach_is_that_of_the_longest_added_token() -> None:
    assert reach(config()) == 10
    assert reach(config(added_tokens=[])) == 1
    assert reach(config(normalizer={"type": "NFC"})) == 10
    assert reach(config(pre_tokenizer=BYTE_LEVEL)) == 10
    digits = {"type": "Digits", "individual_digits": True}
    assert (
        reach(config(pre_tokenizer={"type": "Sequence", "pretokenizers": [digits, BYTE_LEVEL]}))
        == 10
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"type": "Unigram"}},
        {"model": {"type": "BPE", "dropout": 0.1}},
        {"normalizer": {"type": "NFKC"}},
        {"pre_tokenizer": None},
        {"pre_tokenizer": {"type": "Metaspace"}},
        {"pre_tokenizer": {**BYTE_LEVEL, "add_prefix_space": True}},
        {"pre_tokenizer": {**BYTE_LEVEL, "use_regex": False}},
        {"pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "Isolated"}},
        {
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": GPT2},
                "behavior": "MergedWithNext",
            }
        },
        {"added_tokens": [{"content": "word", "single_word": True}]},
        {"added_tokens": [{"content": "x" * 5000}]},
        {"normalizer": {"type": "NFC"}, "added_tokens": [{"content": "é", "normalized": True}]},
    ],
)
def test_what_is_not_shown_to_be_local_is_not(changes: dict[str, Any]) -> None:
    assert reach(config(**changes)) is None
