"""Finds sentences of a document that match a question, without a model. Linear in the document."""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterator

from memagent.memory.ranking import rank
from memagent_bench.systems.fitting import Span

Rank = Callable[[str, str, int], list[Span]]
"""Document, question and the maximum sentences wanted -> their spans, best first."""
LONGEST = 400
"""Maximum characters of a sentence, about 100 tokens; longer ones are cut between words."""
SHORTEST = 20
"""Minimum characters. Anything shorter joins the next sentence, except lines: `Mr.` doesn't end one."""

# A sentence continues after a full stop before a small letter, and in hard-wrapped lines.
_ENDS = re.compile(
    "(?<![.!?…])[.!?…]++[\"'”’»)\\]]*+(?=\\s++[^a-zà-öø-ÿ])"
    "|[。！？]++[”’」』）]*+"
    "|(?P<line>\\n)(?![a-zß-öø-ÿ])"
)
_BLANK = re.compile(r"\s*+")


def sentences(text: str) -> Iterator[Span]:
    """Yields the spans of a text's sentences and lines, without the white space around them."""
    start = 0
    for end in _ENDS.finditer(text):
        if end["line"] is not None or end.end() - start >= SHORTEST:
            yield from _pieces(text, start, end.end())
            start = end.end()
    yield from _pieces(text, start, len(text))


def _pieces(text: str, start: int, stop: int) -> Iterator[Span]:
    """Yields one sentence, in several pieces if it is too long."""
    while True:
        match = _BLANK.match(text, start, stop)
        start = match.end() if match else start
        if start >= stop:
            return
        cut = stop
        if stop - start > LONGEST:
            space = text.rfind(" ", start + 1, start + LONGEST)
            cut = space if space > 0 else start + LONGEST
        length = len(text[start:cut].rstrip())
        yield start, start + length
        start = cut


# --- terms

_QUOTED = re.compile(
    r"(?<!\w)(?:\"([^\"\n]{2,80})\"|'([^'\n]{2,80})'|“([^”\n]{2,80})”|‘([^’\n]{2,80})’)(?!\w)"
)
_RARE = re.compile(
    r"\w+(?:[-_./:@]\w+)+"  # hyphenated words, identifiers, UUIDs, dates
    r"|\d+(?:[.,]\d+)*\w*"
    r"|[^\W\d_]*[A-Z][^\W_]*"  # names, abbreviations
)
_PLAIN = re.compile(r"[^\W\d_]{4,}")
_OF_QUESTIONS = (
    "about above all also among and answer any are below between both did does document each every find following for "
    "from given has have how into list many mentioned more most name not only other provided question since some such "
    "tell text than that the their them there these they this those was were what when where which while who whom "
    "whose why will with would your"
)
_COMMON = frozenset(_OF_QUESTIONS.split())
"""Words in questions that don't help find the answer."""


def terms(question: str) -> list[str]:
    """Returns the words of a question that few sentences contain: quoted, hyphenated, with digits or capitals.

    If there are none, its words of four letters or more.
    """
    quoted = [next(filter(None, match.groups())) for match in _QUOTED.finditer(question)]
    candidates = [term for term in (*quoted, *_RARE.findall(question)) if _tells(term)]
    candidates = candidates or [word for word in _PLAIN.findall(question) if _tells(word)]
    return list(dict.fromkeys(term.casefold() for term in candidates))


def _tells(term: str) -> bool:
    return len(term) > 1 and term.casefold() not in _COMMON


def by_terms(text: str, question: str, most: int) -> list[Span]:
    """Returns sentences that contain terms of the question verbatim, those with the most different terms first."""
    wanted = terms(question)
    if not wanted:
        return []
    longest_first = sorted(wanted, key=len, reverse=True)
    pattern = re.compile(
        rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE
    )
    held: dict[Span, set[str]] = {}
    places = sentences(text)
    span = next(places, None)
    for match in pattern.finditer(text):
        while span is not None and span[1] <= match.start():
            span = next(places, None)
        if span is None:
            break
        held.setdefault(span, set()).add(match[0].casefold())
    best = sorted(held, key=lambda place: (-len(held[place]), place))
    return best[:most]


# --- BM25


def by_bm25(text: str, question: str, most: int) -> list[Span]:
    """Ranks sentences by the BM25 of `rank`.

    Raises:
        ConfigError: this Python's SQLite has no FTS5.
    """
    # Two numbers per sentence, whatever their number: tuples would take more memory than the document.
    starts, ends = array("q"), array("q")

    def texts() -> Iterator[str]:
        for start, end in sentences(text):
            starts.append(start)
            ends.append(end)
            yield text[start:end]

    return [(starts[row], ends[row]) for row in rank(texts(), question, most)]
