"""What holds for the chunks of every text."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent.chunking import Chunk, Chunker, Cuts, ResumePoint, chunk_text
from memagent.chunking.cuts import grapheme_floor
from memagent.tokens import ByteBound, TokenCounter, TokenizerFile

COUNTERS: list[TokenCounter] = [
    TokenizerFile(Path(__file__).parents[1] / "data" / "tokenizer"),
    ByteBound(),
]
TAG = re.compile("<memory>|<\\|im_end\\|>")

PLAIN = [
    "word",
    " ",
    " and ",
    ". ",
    ".\n\n",
    "\r\n",
    "\r\n\r\n",
    "! ",
    "?” ",
    "x" * 40,
    "12345",
    "don't",
    " " * 20,
    "\n" * 200,
    "\u3000" * 9,
]
OTHER = [
    "日本語",
    "。",
    "しかし、",
    "слово ",
    "كلمة ",
    "e\u0301",
    "👩‍👩‍👧",
    "🇩🇪🇫🇷",
    "क्षि",
    "\u0301" * 70,
    "\u2060",
]
TAGS = ["<memory>", "<mem", "ory>", "<|im_end|>", "<|im_", "end|>"]
PARTS = st.sampled_from([*PLAIN, *OTHER, *TAGS]) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=9
)
# Hypothesis draws lists of about five by itself, which would hardly ever fill a chunk.
TEXTS = (st.lists(PARTS, max_size=30) | st.lists(PARTS, min_size=40, max_size=150)).map("".join)


def defuse(text: str) -> tuple[str, Sequence[int]]:
    positions = [match.start() for match in TAG.finditer(text)]
    return TAG.sub(lambda match: f"<\u2060{match[0][1:]}", text), positions


@st.composite
def chunkers(draw: st.DrawFn) -> dict[str, object]:
    limit = draw(st.integers(16, 80))
    return {
        "counter": draw(st.sampled_from(COUNTERS)),
        "limit": limit,
        "cuts": draw(st.sampled_from(["sentence", "exact"])),
        "neutralise": draw(st.sampled_from([None, defuse])),
    }


def cut(
    pieces: list[str], options: dict[str, object], resume: ResumePoint | None = None
) -> list[Chunk]:
    return list(chunk_text(pieces, Chunker(**options, resume=resume)))  # type: ignore[arg-type]


@given(TEXTS, chunkers())
def test_chunks_cover_the_text_within_the_limit(text: str, options: dict[str, object]) -> None:
    counter: TokenCounter = options["counter"]  # type: ignore[assignment]
    show = options["neutralise"] or (lambda raw: (raw, ()))
    chunks = cut([text], options)
    covered = 0
    for index, chunk in enumerate(chunks):
        assert chunk.index == index
        assert chunk.start == covered < chunk.end
        safe, positions = show(text[chunk.start : chunk.end])  # type: ignore[operator]
        assert chunk.neutralised == len(positions)
        if chunk.text != safe:  # white space may be left out at its ends
            assert chunk.text.strip() == safe.strip()
            assert chunk.text in safe if index == 0 else safe.startswith(chunk.text)
        assert chunk.text.strip()
        assert chunk.tokens == counter.count(chunk.text) <= options["limit"]  # type: ignore[operator]
        assert chunk.last == (chunk.end == len(text))
        assert chunk.digest == hashlib.sha256(text[: chunk.end].encode()).hexdigest()
        covered = chunk.end
    assert covered == (len(text) if text.strip() else 0)


@pytest.mark.parametrize("marks", [51, 64, 70])
def test_marks_behind_blanks_are_cut_the_same_however_they_are_fed(marks: int) -> None:
    text = "word" * 6 + " " * 20 + "\u0301" * marks
    options: dict[str, object] = {"counter": COUNTERS[0], "limit": 16}
    assert cut([text], options) == cut(list(text), options) == cut([text[:95], text[95:]], options)


@given(TEXTS, chunkers(), st.lists(st.integers(0, 2000), max_size=12))
def test_chunks_do_not_depend_on_how_the_text_is_fed(
    text: str, options: dict[str, object], at: list[int]
) -> None:
    expected = cut([text], options)
    at = sorted(min(position, len(text)) for position in at)
    pieces = [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
    assert cut(pieces, options) == expected
    assert cut(list(text), options) == expected
    late = Chunker(**options)  # type: ignore[arg-type]
    for piece in pieces:
        late.feed(piece)
    late.close()
    popped: list[Chunk] = []
    while (chunk := late.pop()) is not None:
        popped.append(chunk)
    assert popped == expected


@given(TEXTS, chunkers(), st.data())
def test_a_resume_behind_any_chunk_gives_the_rest(
    text: str, options: dict[str, object], data: st.DataObject
) -> None:
    expected = cut([text], options)
    if not expected:
        return
    done = data.draw(st.integers(1, len(expected)))
    size = data.draw(st.integers(1, 50))
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert cut(pieces, options, ResumePoint.after(expected[done - 1])) == expected[done:]


@pytest.mark.parametrize("cuts", ["sentence", "exact"])
@given(text=TEXTS, limit=st.integers(100, 200))
def test_clusters_stay_whole_where_they_fit(cuts: Cuts, text: str, limit: int) -> None:
    for chunk in chunk_text([text], Chunker(COUNTERS[0], limit, cuts=cuts)):
        floor = grapheme_floor(text, chunk.end)
        assert floor == chunk.end or chunk.end - floor > 20  # the long ones here take 70


@given(TEXTS, st.integers(16, 80))
def test_exact_chunks_hold_all_that_fits(text: str, limit: int) -> None:
    chunks = list(chunk_text([text], Chunker(ByteBound(), limit, cuts="exact")))
    for chunk in chunks[:-1]:
        following = len(text[chunk.end : chunk.end + 64].encode())
        assert chunk.tokens + following > limit
