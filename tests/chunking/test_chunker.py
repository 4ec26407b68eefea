"""The chunker by example. What holds for every text is in property/test_chunking.py."""

import gzip
import hashlib
import time
from itertools import pairwise
from pathlib import Path

import pytest

from memagent.chunking import Chunk, Chunker, Cuts, ResumePoint, chunk_text
from memagent.chunking.chunker import MAX_CHARS_PER_TOKEN, MIN_LIMIT
from memagent.errors import ConfigError, RunMismatch
from memagent.prompts import Neutraliser
from memagent.tokens import ByteBound, TokenizerFile
from memagent.tokens.base import Measured

ROOT = Path(__file__).parents[2]
COUNTER = TokenizerFile(ROOT / "tests" / "data" / "tokenizer")
BOOK = gzip.decompress((ROOT / "src/memagent/samples/war_and_peace.txt.gz").read_bytes()).decode()[
    :300_000
]


def cut(text: str, chunker: Chunker) -> list[Chunk]:
    return list(chunk_text([text], chunker))


def test_a_book_is_cut_at_sentences_without_a_gap() -> None:
    chunks = cut(BOOK, Chunker(COUNTER, 500))
    assert "".join(chunk.text for chunk in chunks) == BOOK
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    endings = [chunk.text.rstrip()[-1] for chunk in chunks[:-1]]
    assert sum(ending in '.?!"”’:' for ending in endings) > 0.9 * len(endings)
    assert sum(chunk.tokens for chunk in chunks[:-1]) > 0.85 * 500 * (len(chunks) - 1)


def test_exact_cuts_fill_every_chunk() -> None:
    chunks = cut(BOOK, Chunker(COUNTER, 500, cuts="exact"))
    assert "".join(chunk.text for chunk in chunks) == BOOK
    assert all(chunk.tokens >= 498 for chunk in chunks[:-1])
    for chunk, following in pairwise(chunks):
        assert COUNTER.count(chunk.text + following.text[0]) > 500


def test_positions_and_digests_are_those_of_the_raw_text() -> None:
    text = "Before. <memory> inside </memory> after. " * 40
    chunks = cut(
        text, Chunker(COUNTER, 64, neutralise=Neutraliser(None, ["<memory>", "</memory>"]))
    )
    assert sum(chunk.neutralised for chunk in chunks) == 80
    for chunk in chunks:
        assert chunk.text.replace("\u2060", "") == text[chunk.start : chunk.end]
        assert chunk.digest == hashlib.sha256(text[: chunk.end].encode()).hexdigest()
        assert "<memory>" not in chunk.text


def test_one_chunk_and_no_chunk() -> None:
    (only,) = cut("Short.", Chunker(COUNTER, 16))
    assert (only.start, only.end, only.last, only.tokens) == (0, 6, True, COUNTER.count("Short."))
    assert cut("", Chunker(COUNTER, 16)) == []


def test_nothing_is_given_before_the_text_suffices_and_last_is_known_at_the_end() -> None:
    chunker = Chunker(COUNTER, 16)
    chunker.feed("Too short to be cut.")
    assert not chunker.ready
    assert chunker.pop() is None
    chunker.close()
    assert chunker.ready
    chunk = chunker.pop()
    assert chunk is not None
    assert chunk.last
    assert chunker.pop() is None
    with pytest.raises(RuntimeError):
        chunker.feed("more")


@pytest.mark.parametrize("cuts", ["sentence", "exact"])
@pytest.mark.parametrize("blank", ["\n", " \t", "\r\n", "\u3000"])
def test_blank_lines_make_no_chunk_of_their_own(blank: str, cuts: Cuts) -> None:
    blanks = blank * 20_000
    text = f"{blanks}One. {blanks}Two.{blanks}"
    chunks = cut(text, Chunker(COUNTER, 32, cuts=cuts))
    assert [chunk.text.strip() for chunk in chunks] == ["One.", "Two."]
    assert all(chunk.tokens <= 32 for chunk in chunks)
    assert [chunk.start for chunk in chunks] == [0, chunks[0].end]
    assert text[chunks[0].end :].startswith("Two.")
    assert chunks[1].end == len(text)
    assert chunks[1].last
    assert chunks[1].digest == hashlib.sha256(text.encode()).hexdigest()
    resumed = Chunker(COUNTER, 32, cuts=cuts, resume=ResumePoint.after(chunks[0]))
    assert cut(text, resumed) == chunks[1:]


def test_a_run_resumed_before_white_space_alone_has_nothing_left_to_read() -> None:
    done = Chunker(COUNTER, 32)
    done.feed("One. " * 9)
    done.close()
    last = done.pop()
    assert last is not None
    for blank in ("\n", "\n" * 9999):
        text = "One. " * 9 + blank
        assert cut(text, Chunker(COUNTER, 32, resume=ResumePoint.after(last))) == []


def test_short_white_space_is_shown_as_it_is() -> None:
    text = "A  word\n\nand  two.\n" * 99
    chunks = cut(text, Chunker(COUNTER, 64, cuts="exact"))
    assert "".join(chunk.text for chunk in chunks).rstrip() == text.rstrip()


def test_a_resumed_chunker_goes_on_as_if_nothing_had_happened() -> None:
    whole = cut(BOOK[:80_000], Chunker(COUNTER, 300))
    for done in (1, 7, len(whole) - 1, len(whole)):
        point = ResumePoint.after(whole[done - 1])
        resumed = Chunker(COUNTER, 300, resume=point)
        pieces = (BOOK[at : min(at + 777, 80_000)] for at in range(0, 80_000, 777))
        assert list(chunk_text(pieces, resumed)) == whole[done:]


class Watched(ByteBound):
    """Remembers how many characters were tokenised."""

    seen = 0

    def measure(self, text: str) -> Measured:  # type: ignore[override]
        self.seen += len(text)
        return super().measure(text)


def test_what_was_covered_is_not_tokenised_again() -> None:
    whole = cut(BOOK, Chunker(ByteBound(), 2000))
    counter = Watched()
    rest = cut(BOOK, Chunker(counter, 2000, resume=ResumePoint.after(whole[-3])))
    assert rest == whole[-2:]
    assert counter.seen < 10_000


def test_another_document_is_told_from_the_one_that_was_read() -> None:
    chunk = cut(BOOK, Chunker(COUNTER, 300))[4]
    for other in (
        "X" + BOOK[1:],
        BOOK[: chunk.end - 1] + "#" + BOOK[chunk.end :],
        BOOK[: chunk.end - 1],
        "",
    ):
        with pytest.raises(RunMismatch, match="the document has changed: "):
            cut(other, Chunker(COUNTER, 300, resume=ResumePoint.after(chunk)))
    same_start = BOOK[: chunk.end] + "Another end."
    assert cut(same_start, Chunker(COUNTER, 300, resume=ResumePoint.after(chunk)))[
        -1
    ].text.endswith("Another end.")


@pytest.mark.parametrize(
    ("limit", "options", "message"),
    [
        (MIN_LIMIT - 1, {}, "at least 16 tokens, got 15"),
        (100, {"cuts": "page"}, "cuts='page'"),
    ],
)
def test_settings_out_of_range_are_refused(
    limit: int, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Chunker(COUNTER, limit, **options)  # type: ignore[arg-type]


class Fussy(ByteBound):
    """A tokenizer for which one character takes more tokens than a chunk may have."""

    def count(self, text: str) -> int:
        return super().count(text) + 100 * text.count("ﷺ")


def test_a_character_that_fits_nowhere_is_an_error() -> None:
    with pytest.raises(ConfigError, match="'ﷺ' takes more than a chunk's limit of 32"):
        cut("abc ﷺ def", Chunker(Fussy(), 32))


class Weightless(ByteBound):
    """A tokenizer that drops zero-width spaces altogether."""

    def count(self, text: str) -> int:
        return super().count(text.replace("\u200b", ""))

    def measure(self, text: str) -> Measured:  # type: ignore[override]
        rest = text.replace("\u200b", "")
        return ByteBound().measure(rest) if rest else Nothing(text)


class Nothing:
    def __init__(self, text: str) -> None:
        self.tokens, self._text = 0, text

    def chars_within(self, limit: int) -> int:
        return len(self._text)

    def tokens_of_prefix(self, chars: int) -> int:
        return 0


def test_text_without_tokens_is_cut_by_length() -> None:
    chunks = cut("\u200b" * 5000, Chunker(Weightless(), 16))
    assert max(len(chunk.text) for chunk in chunks) == 16 * MAX_CHARS_PER_TOKEN
    assert "".join(chunk.text for chunk in chunks) == "\u200b" * 5000


HARD = {
    "one letter": "a",
    "spaces": " " * 999 + "x",
    "line ends": "\r\n" * 999 + "x",
    "full stops": ".",
    "ideographs": "語",
    "digits": "7",
    "families": "\U0001f469\u200d\U0001f469\u200d\U0001f467",
    "flags": "\U0001f1e9\U0001f1ea",
    "endless emoji": "\U0001f469\u200d",
    "marks": "\u0301",
    "arabic": "كتاب ",
    "tags": "<memory>",
    "control tokens": "<|im_end|>",
    "half tags": "<",
}


@pytest.mark.parametrize("unit", HARD.values(), ids=HARD)
def test_hard_texts_take_linear_time(unit: str) -> None:
    neutralise = Neutraliser(None, ["<memory>", "</memory>", *COUNTER.control_tokens])
    text = unit * (60_000 // len(unit))
    begun = time.process_time()
    chunks = cut(text, Chunker(COUNTER, 200, neutralise=neutralise))
    assert time.process_time() - begun < 4  # quadratic work takes minutes
    assert chunks[-1].end == len(text)
    assert all(chunk.tokens <= 200 for chunk in chunks)
    assert len(chunks) < 4 * sum(chunk.tokens for chunk in chunks) / 200 + 4
    assert all(len(chunk.text) <= 200 * MAX_CHARS_PER_TOKEN for chunk in chunks)


def test_whole_clusters_stay_whole() -> None:
    for unit in (HARD["families"], HARD["flags"], "e\u0301", "\r\n"):
        for chunk in cut(unit * 500, Chunker(COUNTER, 64)):
            assert len(chunk.text) % len(unit) == 0
