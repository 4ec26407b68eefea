"""Memories that say nothing: a line over and over, or nearly nothing left of what was known."""

from __future__ import annotations

import re
from collections import Counter

from memagent.chunking import Chunk
from memagent.models.policy import Degenerate
from memagent.prompts.reply import Answer, Update
from memagent.texts import quote

LONGEST_PERIOD = 300
"""Characters of a piece that is looked for over and over at the end of a text."""
LEAST_TAIL = 80
"""Characters that such pieces take together at least: a ruled line or three dots are no sign of anything."""
TIMES = 4
LEAST_WORDS = 8
"""Of a memory that can collapse: a shorter one may well be rewritten whole."""
_WORD = re.compile(r"\w{4,}|\d+")


def repetition(text: str) -> str | None:
    """What a text says over and over, None if it doesn't: the same piece to its end, or most of its lines the same."""
    for period in range(1, min(LONGEST_PERIOD, len(text) // TIMES) + 1):
        if text[-1] != text[-1 - period]:
            continue
        times = max(TIMES, -(-LEAST_TAIL // period))
        piece = text[-period:]
        if text.endswith(piece * times) and any(map(str.isalnum, piece)):
            return " ".join(piece.split())
    lines = Counter(map(str.strip, text.splitlines()))
    del lines[""]
    for line, count in lines.most_common(1):
        if count >= TIMES and 2 * count > lines.total() and any(map(str.isalnum, line)):
            return line
    return None


def has_collapsed(old: str, new: str, chunk: str) -> bool:
    """Whether a memory lost most of its words, unexplained by the chunk: few of the words that are left stand in it.

    A memory of suspects that becomes the culprit's name has the name from the chunk; one that becomes "nothing
    relevant" has its words from nowhere.
    """
    if 2 * len(new) >= len(old):
        return False
    before, after = _words(old), _words(new)
    if len(before) < LEAST_WORDS or 4 * len(after) >= len(before):
        return False
    return 2 * len(after & _words(chunk)) < len(after) or not after


def find_problem(
    choice: Degenerate, old: str, chunk: Chunk | None, reply: Update | Answer
) -> str | None:
    """Why a new memory or an answer says nothing, None if it seems to say something.

    Args:
        choice: with `take` there is never a problem.
        old: the memory before.
        chunk: what a new memory was written from.
        reply: the memory or the answer.
    """
    text = reply.text if isinstance(reply, Answer) else reply.memory
    if text is None or choice == "take":
        return None
    if (piece := repetition(text)) is not None:
        what = "answer" if isinstance(reply, Answer) else "new memory"
        return f"the {what} says {quote(piece)} over and over"
    if chunk is not None and has_collapsed(old, text, chunk.text):
        return (
            f"hardly a word of the memory is left, and the chunk does not explain it: {quote(text)}"
        )
    return None


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower()))
