"""Detects degenerate memories: one line over and over, or hardly anything left of the old memory."""

from collections import Counter
from itertools import pairwise

from memagent.chunking import Chunk
from memagent.models.policy import Degenerate
from memagent.prompts.reply import Answer, Update
from memagent.texts import quote, words

LONGEST_PERIOD = 300
"""Maximum characters of a piece that may repeat at the end of a text."""
LEAST_TAIL = 80
"""Minimum characters that the repeats take together: a ruled line or three dots mean nothing."""
TIMES = 4
LEAST_WORDS = 8
"""Minimum size of a memory that can collapse: a shorter one may well be rewritten completely."""


def repetition(text: str) -> str | None:
    """Returns what a text repeats: a piece up to its end, or a line that makes up most of it; None if nothing."""
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
    """Returns whether a memory lost most of its words, and few of the remaining ones are in the chunk.

    If a list of suspects shrinks to the culprit's name, the chunk has that name; "nothing relevant" isn't in the chunk.
    """
    if 2 * len(new) >= len(old):
        return False
    before, after = _words(old), _words(new)
    if len(before) < LEAST_WORDS or 4 * len(after) >= len(before):
        return False
    return 2 * len(after & _words(chunk)) < len(after) or not after


def find_problem(
    choice: Degenerate, old: str, chunk: Chunk | None, reply: Update | Answer | None
) -> str | None:
    """Says what is wrong with a new memory, given the old one and the chunk, or with an answer; None if nothing is.

    With `take` nothing counts as degenerate.
    """
    text = reply.text if isinstance(reply, Answer) else reply and reply.memory
    if text is None or choice == "take":
        return None
    if (piece := repetition(text)) is not None:
        subject = "answer" if isinstance(reply, Answer) else "new memory"
        return f"the {subject} repeats {quote(piece)} over and over"
    if chunk is not None and has_collapsed(old, text, chunk.text):
        return f"hardly a word of the old memory is left, for no reason in the chunk: {quote(text)}"
    return None


def _words(text: str) -> set[str]:
    """Returns the words that carry meaning: long ones, numbers, and pairs of Chinese or Japanese characters."""
    texts = words(text)
    pairs = {first + second for first, second in pairwise(texts) if len(first) == len(second) == 1}
    return pairs | {word for word in texts if len(word) > 3 or not word.isalpha()}
