"""Which tokenisers have stable points, and where they are in a text."""

import unicodedata
from itertools import takewhile
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from memagent.texts import last_end
from memagent.tokens.locality import STABLE, is_local, splits_at_stable_points

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


def stable_points(text: str) -> list[int]:
    return [m.end() for m in STABLE.finditer(text)]


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
    for point in stable_points(text):
        assert point in whole
        cut = data.draw(st.integers(point, len(text)))
        left = list(takewhile(lambda end, p=point: end <= p, whole))
        assert ends(text[:cut]) == left + [point + end for end in ends(text[point:cut])]


@given(TEXTS, st.integers(0, 60), st.integers(-2, 90))
def test_the_last_point_of_a_span(text: str, after: int, before: int) -> None:
    points = [p for p in stable_points(text) if after < p <= before]
    assert last_end(STABLE, text, after, before, 32) == (points[-1] if points else None)


def test_points_far_away_are_found() -> None:
    text = "end " + "x" * 100_000
    assert last_end(STABLE, text, 0, len(text), 32) == 3
    assert last_end(STABLE, "x" * 100_000, 0, 100_000, 32) is None


def test_letters_are_letters_and_neither_they_nor_separators_change_under_nfc() -> None:
    everything = "".join(chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000)
    letters = [char for char in everything if STABLE.search(f"{char} ")]
    separators = [char for char in everything if STABLE.search(f"a{char}")]
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


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"added_tokens": [{"content": "<seed:think>"}, {"content": "<mask>", "rstrip": True}]},
        {"normalizer": {"type": "NFC"}},
        {"pre_tokenizer": BYTE_LEVEL},
        {
            "pre_tokenizer": {
                "type": "Sequence",
                "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTE_LEVEL],
            }
        },
    ],
)
def test_tokenisers_that_are_local(changes: dict[str, Any]) -> None:
    assert is_local(config(**changes))


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
        {"added_tokens": [{"content": "<two words>"}]},
        {"added_tokens": [{"content": "INST", "rstrip": True}]},
        {"normalizer": {"type": "NFC"}, "added_tokens": [{"content": "é", "normalized": True}]},
    ],
)
def test_what_is_not_shown_to_be_local_is_not(changes: dict[str, Any]) -> None:
    assert not is_local(config(**changes))
