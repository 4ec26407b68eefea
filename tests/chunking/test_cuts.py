"""Where a text may be cut."""

import time
from collections.abc import Callable

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from memagent.chunking.cuts import (
    MAX_GRAPHEME,
    grapheme_floor,
    last_sentence_end,
    next_grapheme,
    place,
)

FLAG, FAMILY = "\U0001f1e9\U0001f1ea", "\U0001f469\u200d\U0001f469\u200d\U0001f467"
CLUSTERS = [
    "a",
    " ",
    "\r\n",
    "\n",
    "\r",
    "e\u0301",
    FLAG,
    FAMILY,
    "\u1100\u1161\u11a8",
    "가",
    "क्षि",
    "👍🏽",
    "日",
    "\u0600ا",
]
TEXTS = st.lists(
    st.sampled_from(CLUSTERS) | st.characters(exclude_categories=["Cs"]), max_size=60
).map("".join)
WORDS = "word " * 30


def boundaries(text: str) -> list[int]:
    return [0, *(m.end() for m in regex.finditer(r"\X", text))]


@given(TEXTS, st.data())
def test_grapheme_floor_is_the_last_boundary(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    assert grapheme_floor(text, at) == max(b for b in boundaries(text) if b <= at)


@given(TEXTS)
def test_next_grapheme_walks_the_boundaries(text: str) -> None:
    walked = [0]
    while walked[-1] < len(text):
        walked.append(next_grapheme(text, walked[-1]))
    assert walked == boundaries(text)


def test_long_clusters_may_be_cut_and_flags_keep_their_pairs() -> None:
    zalgo = "a" + "\u0301" * 500
    assert grapheme_floor(zalgo, 300) == 300
    short = "x" * 50 + "a" + "\u0301" * (MAX_GRAPHEME - 1) + "b"
    assert grapheme_floor(short, 80) == 50
    flags = "x" + FLAG * 3000
    assert grapheme_floor(flags, 4001) == 4001
    assert grapheme_floor(flags, 4002) == 4001


@pytest.mark.parametrize(
    ("text", "end"),
    [
        # a paragraph's end in the last 15% wins over a sentence's after it
        (WORDS + "End.\n\nNew one. More words", "End.\n\n"),
        (WORDS + "End.\r\n\r\nNew one. More words", "End.\r\n\r\n"),
        (WORDS + "End.\n \t\nNew one. More words", "End.\n \t\n"),
        # one line end of two characters is no blank line
        (WORDS + "End.\r\nNew one. More words", "New one. "),
        # a paragraph's end further back does not
        (WORDS + "Far.\n\n" + "word " * 10 + "Near. more words", "Near. "),
        (WORDS + 'He said "Go!" and went on and', '"Go!" '),
        (WORDS + "(So it ended.) and went", "ended.) "),
        (WORDS + "Wait… what 3.14 is", "Wait… "),
        (WORDS + "これは文です。次の文は長いです", "これは文です。"),
        (WORDS + "「はい。」と言った", "「はい。」"),
        (WORDS + "Was?! Nein", "Was?! "),
        (WORDS + "राम गया। वह आया", "गया। "),
        (WORDS + "هل ذهب؟ نعم ذهب", "ذهب؟ "),
        # line ends count, unless the line goes on in lower case
        (WORDS + "a title\nNext line goes", "a title\n"),
        (WORDS + "Done. a wrapped\nline goes on", "Done. "),
        (WORDS + "key = 1\r\nKEY = 2", "key = 1\r\n"),
        # else a word's end
        ("no sentence anywhere here", "anywhere "),
        # else all that fits
        ("x" * 100, "x" * 100),
        ("word " + "x" * 100, "x" * 100),
    ],
)
def test_where_a_chunk_ends(text: str, end: str) -> None:
    bound = len(text)
    cut = place(text + "x" * 80, bound, "sentence")
    assert text[:cut].endswith(end)
    assert place(text + "x" * 80, bound, "exact") == bound


def test_white_space_behind_the_cut_goes_along_as_far_as_it_fits() -> None:
    text = WORDS + "End.   \n\n   Next"
    stop = text.index("End.") + 4
    for bound in range(stop, stop + 9):
        assert place(text + WORDS, bound, "sentence") == bound
    assert place(text + WORDS, stop + 10, "sentence") == stop + 8
    assert place(text + WORDS, stop - 1, "sentence") < stop - 3


def test_cuts_lie_behind_the_floor() -> None:
    text = "One. " + "x" * 20 + " two"
    assert place(text, 20, "sentence", floor=0) == 20
    assert place("One. Two. Three", 12, "sentence") == 10
    assert place("One. Two. Three", 12, "sentence", floor=10) == 12
    assert place(FAMILY * 3, 3, "exact", floor=2) == 3
    assert place(" \u0301" * 9, 3, "sentence", floor=2) == 3


@given(TEXTS, st.sampled_from(["sentence", "exact"]), st.data())
def test_a_cut_is_always_between_floor_and_bound(text: str, cuts: str, data: st.DataObject) -> None:
    text += "ab"
    bound = data.draw(st.integers(1, len(text) - 1))
    floor = data.draw(st.integers(0, bound - 1))
    assert floor < place(text, bound, cuts, floor) <= bound  # type: ignore[arg-type]


def test_last_sentence_end() -> None:
    text = "One. Two! Thr"
    assert last_sentence_end(text, len(text)) == 9
    assert last_sentence_end(text, 8) == 4
    assert last_sentence_end(text, 3) == 0
    assert last_sentence_end("Whole.", 6) == 6
    assert last_sentence_end("- a list\n- of points\n- cu", 25) == 20


@pytest.mark.parametrize(
    "unit",
    [
        "." * 3,
        ".'",
        ". ",
        "\n",
        "\r\n",
        " ",
        "\n ",
        "。",
        "x",
        FLAG,
        "a\u0301",
        "\u0301",
        FAMILY,
        ".\u0301",
    ],
)
def test_every_search_is_linear(unit: str) -> None:
    def seconds(call: Callable[[], object]) -> float:
        begun = time.process_time()
        call()
        return time.process_time() - begun

    text = unit * (200_000 // len(unit))
    bound = len(text) - 7
    calls: list[Callable[[], object]] = [
        lambda: place(text, bound, "sentence"),
        lambda: place(text, bound, "exact"),
        lambda: last_sentence_end(text, bound),
    ]
    for call in calls:
        assert seconds(call) < 0.5  # quadratic searches take minutes here
