"""Where a text may be cut: paragraphs, sentences, words, grapheme clusters. Pure functions of a text.

Every search is bounded by the given text and linear in it: runs are matched possessively
and only from their first character, since texts of nothing but full stops do occur.
"""

import re
from typing import Literal

import regex

from memagent.texts import LINE_END, STOPS, last_end

Cuts = Literal["sentence", "exact"]
"""`sentence` prefers the end of a paragraph, sentence or word; `exact` takes everything that fits."""

PARAGRAPH_SHARE = 0.15
"""A paragraph's end is preferred only in the last 15% of what fits: further back it wastes too much room."""
SENTENCE_SHARE = 0.5
"""Sentence and word ends must be in the second half, so there are never more than twice as many chunks."""
MAX_GRAPHEME = 64
"""A longer cluster (in code points) may be cut: those of real writing are shorter, junk may never end."""

LOOK = 512
"""Characters searched for an end first: a few sentences, which usually contain one."""

_LINE = r"(?>\r\n|\r|\n)"
_CLOSING = "\"'”’»)\\]}"
_CJK_CLOSING = "\"'”’」』】）》〉"

_PARAGRAPH = re.compile(rf"(?=(?P<end>)){_LINE}[ \t\f\v]*+{_LINE}")
_SENTENCE = re.compile(
    rf"(?<![{STOPS}])[{STOPS}]++[{_CLOSING}]*+(?=(?P<latin>)(?:\s|\Z))"
    rf"|[。！？｡]++[{_CJK_CLOSING}]*+(?P<cjk>)"
    rf"|(?P<line>){LINE_END}"
)
_WORD = re.compile(r"(?P<end>)\s++")
_CLUSTER = regex.compile(r"\X")
# None of these joins its neighbour, except a line feed after a carriage return: most cuts need no closer look.
_WESTERN = re.compile(r"[\0-\u02FF\u2010-\u2027]{2}")
_FLAGS = "".join(map(chr, range(0x1F1E6, 0x1F200)))  # regional indicators, which pair up to flags


def place(text: str, bound: int, cuts: Cuts, floor: int = 0) -> int:
    """Chooses where to end a chunk.

    Args:
        text: begins where the chunk begins and continues past `bound`, for look-ahead.
        bound: characters that fit, at least `floor + 1`.
        cuts: see `Cuts`.
        floor: the cut must come after this position.

    Returns:
        A position in (floor, bound].
    """
    if cuts == "sentence":
        late = max(floor, int(bound * (1 - PARAGRAPH_SHARE)))
        half = max(floor, int(bound * (1 - SENTENCE_SHARE)))
        for pattern, low in ((_PARAGRAPH, late), (_SENTENCE, half), (_WORD, half)):
            if (end := last_end(pattern, text, low, bound, LOOK)) is not None:
                # Include the white space after it, as far as it fits.
                end = grapheme_floor(text, end + blanks(text[end:bound]))
                if end > floor:
                    return end
                break
    end = grapheme_floor(text, bound)
    return end if end > floor else bound


def blanks(text: str) -> int:
    """Counts the white-space characters at the start of a text."""
    return len(text) - len(text.lstrip())


def grapheme_floor(text: str, at: int) -> int:
    """Finds the last boundary between grapheme clusters at or before a position.

    A cluster of more than `MAX_GRAPHEME` code points may be cut; inside one, `at` itself is returned.
    """
    if at <= 0 or at >= len(text):
        return max(0, min(at, len(text)))
    pair = text[at - 1 : at + 1]
    if _WESTERN.fullmatch(pair):
        return at - 1 if pair == "\r\n" else at
    flags = at - len(text[:at].rstrip(_FLAGS))
    # The search below has to see where pairing begins.
    if flags > MAX_GRAPHEME and text[at] in _FLAGS:
        return at - flags % 2
    # A cluster that begins before this start exceeds the limit; all others are seen whole.
    start = max(0, at - 2 * MAX_GRAPHEME)
    for cluster in _CLUSTER.finditer(text[start : at + MAX_GRAPHEME + 1]):
        if start + cluster.end() > at:
            inside = cluster.end() - cluster.start() <= MAX_GRAPHEME
            return start + cluster.start() if inside else at
    return at


def last_sentence_end(text: str, bound: int) -> int:
    """Finds the last end of a sentence or line at or before a position; 0 if there is none."""
    return last_end(_SENTENCE, text, 0, bound, LOOK) or 0


def next_grapheme(text: str, at: int) -> int:
    """Finds the end of the grapheme cluster that begins at `at`, or of its first `MAX_GRAPHEME` code points."""
    cluster = _CLUSTER.match(text[at : at + MAX_GRAPHEME])
    return at + (cluster.end() if cluster else 0)
