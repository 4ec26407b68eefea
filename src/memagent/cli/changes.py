"""How a memory differs from the previous one, by sentence and by word."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

import regex

from memagent.quotes import sentences
from memagent.terminal import PIPE_WIDTH, shorten

WORDS = regex.compile(r"\s+|\w+|[^\w\s]")  # the `\w` of `re` lacks combining marks
ALIKE = 0.5
"""Two sentences with at least this `SequenceMatcher` ratio are one sentence, rewritten."""
MOST_PAIRS = 100_000
"""Maximum pairs of equal items: two passages of 2,500 words have as many, and so do two of 316 times one word."""


@dataclass(frozen=True)
class Change:
    """One sentence that was added, removed or rewritten."""

    removed: str
    """Empty if a sentence was only added."""
    added: str
    """Empty if one was only removed."""


def changes(old: str, new: str, *, rewritten: bool = True) -> list[Change]:
    """Returns the changes to a memory, in text order. White space at sentence ends is ignored."""
    before, after = ([s for part in sentences(text) if (s := part.strip())] for text in (old, new))
    differences: list[Change] = []
    for kind, i, j, k, m in opcodes(before, after):
        if kind == "equal":
            continue
        for old_part, new_part in zip_longest(before[i:j], after[k:m], fillvalue=""):
            if old_part and new_part and not (rewritten and _alike(old_part, new_part)):
                differences += [Change(old_part, ""), Change("", new_part)]
            else:
                differences.append(Change(old_part, new_part))
    return differences


def mark_changes(old: str, new: str) -> list[tuple[str, bool]]:
    """Splits the new text into parts, each with whether it is new; joined, they give the text back."""
    parts = sentences(new)
    before, after = ([part.strip() for part in group] for group in (sentences(old), parts))
    codes = opcodes(before, after)
    return [(part, kind != "equal") for kind, _, _, k, m in codes for part in parts[k:m]]


def words(change: Change) -> Iterator[tuple[str, str]]:
    """Yields a rewritten sentence word by word: `("=" | "-" | "+", text)`."""
    before, after = WORDS.findall(change.removed), WORDS.findall(change.added)
    for kind, i, j, k, m in opcodes(before, after):
        if i < j:
            yield "=" if kind == "equal" else "-", "".join(before[i:j])
        if k < m and kind != "equal":
            yield "+", "".join(after[k:m])


def gist(old: str, new: str, width: int = PIPE_WIDTH) -> str:
    """Shows the first change in one line: an addition (`+ ...`), else a removal (`- ...`); empty if nothing changed."""
    edits = changes(old, new, rewritten=False)  # finding rewritten sentences may be slow
    additions = [f"+ {change.added}" for change in edits if change.added]
    return shorten([*additions, *(f"- {change.removed}" for change in edits), ""][0], width)


def _alike(first: str, second: str) -> bool:
    before, after = WORDS.findall(first), WORDS.findall(second)
    overlap = sum(j - i for kind, i, j, _, _ in opcodes(before, after) if kind == "equal")
    return 2 * overlap >= ALIKE * (len(before) + len(after))


def opcodes(old: Sequence[str], new: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """Returns a `SequenceMatcher`'s opcodes; for repetitive texts, on which it takes cubic time, one for the whole."""
    counts = Counter(new)
    if sum(counts[item] for item in old) > MOST_PAIRS:
        return [("equal" if old == new else "replace", 0, len(old), 0, len(new))]
    return SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
