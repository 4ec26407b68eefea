"""Differences between a text and the previous one: operations that rebuild it, and that can be shown to a reader."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import regex

from memagent.cli.changes import opcodes
from memagent.quotes import sentences

Delta: TypeAlias = "list[int | str]"
"""Operations in the order of the text: `n > 0` keeps n UTF-16 code units (a browser's characters) of the old text, `n <
0` drops -n of them, and a text is inserted."""
Part: TypeAlias = "tuple[str, str, str]"
"""Kept, removed and added text."""

WORDS = regex.compile(r"\s*\w+|\s*[^\w\s]|\s+")
ALIKE = 0.4
"""Share of common characters below which two passages are shown as one removed and one added."""
ISLAND = 4
"""A kept part of fewer characters between two changes counts as changed: a shared `of` is chance."""


def find_delta(old: str, new: str) -> Delta:
    """Returns the operations that turn one text into another, by sentence, then by word."""
    delta: Delta = []
    deletion = insertion = ""
    for equal, old_part, new_part in [*_parts(old, new), ("", "", "")]:
        if old_part or new_part:
            deletion, insertion = deletion + old_part, insertion + new_part
            continue
        if deletion:
            delta.append(-units(deletion))
        if insertion:
            delta.append(insertion)
        deletion = insertion = ""
        if equal and delta and isinstance(delta[-1], int) and delta[-1] > 0:
            delta[-1] += units(equal)
        elif equal:
            delta.append(units(equal))
    return delta


def units(text: str) -> int:
    """Counts the UTF-16 code units of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _parts(old: str, new: str) -> Iterator[Part]:
    for equal, deletion, insertion in _matches(sentences(old), sentences(new)):
        if equal or not (deletion and insertion):
            yield equal, deletion, insertion
        else:
            yield from _words(deletion, insertion)


def _words(old: str, new: str) -> list[Part]:
    before, after = WORDS.findall(old), WORDS.findall(new)
    parts = list(_matches(before, after))
    equal_chars = sum(len(equal) for equal, _, _ in parts)
    if 2 * equal_chars < ALIKE * (len(old) + len(new)):
        return [("", old, new)]
    inner = range(1, len(parts) - 1)
    return [
        ("", equal, equal)
        if place in inner and 0 < len(equal) < ISLAND
        else (equal, deletion, insertion)
        for place, (equal, deletion, insertion) in enumerate(parts)
    ]


def _matches(before: Sequence[str], after: Sequence[str]) -> Iterator[Part]:
    for kind, i, j, k, m in opcodes(before, after):
        deletion, insertion = "".join(before[i:j]), "".join(after[k:m])
        yield (deletion, "", "") if kind == "equal" else ("", deletion, insertion)
