"""How a text differs from the one before: operations that rebuild it, and that a reader can be shown."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import regex

from memagent.cli.changes import opcodes
from memagent.quotes import sentences

Delta: TypeAlias = "list[int | str]"
"""In the order of the text: `n > 0` keeps n UTF-16 code units (a browser's characters) of the old text, `n < 0` drops
-n of them, and a text is inserted."""
Part: TypeAlias = "tuple[str, str, str]"
"""Kept, removed, added."""

WORDS = regex.compile(r"\s*\w+|\s*[^\w\s]|\s+")
ALIKE = 0.4
"""Two passages that share less than this part of their characters are shown as one removed and one added."""
ISLAND = 4
"""A kept part of fewer characters between two changes counts as changed: a shared `of` is chance."""


def find_delta(old: str, new: str) -> Delta:
    """The operations that turn one text into another, by sentence, then by word."""
    delta: Delta = []
    removed = added = ""
    for kept, gone, come in [*_parts(old, new), ("", "", "")]:
        if gone or come:
            removed, added = removed + gone, added + come
            continue
        if removed:
            delta.append(-units(removed))
        if added:
            delta.append(added)
        removed = added = ""
        if kept and delta and isinstance(delta[-1], int) and delta[-1] > 0:
            delta[-1] += units(kept)
        elif kept:
            delta.append(units(kept))
    return delta


def units(text: str) -> int:
    """UTF-16 code units of a text."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _parts(old: str, new: str) -> Iterator[Part]:
    for same, removed, added in _matches(sentences(old), sentences(new)):
        if same or not (removed and added):
            yield same, removed, added
        else:
            yield from _words(removed, added)


def _words(old: str, new: str) -> list[Part]:
    before, after = WORDS.findall(old), WORDS.findall(new)
    parts = list(_matches(before, after))
    kept = sum(len(same) for same, _, _ in parts)
    if 2 * kept < ALIKE * (len(old) + len(new)):
        return [("", old, new)]
    inner = range(1, len(parts) - 1)
    return [
        ("", same, same) if place in inner and 0 < len(same) < ISLAND else (same, removed, added)
        for place, (same, removed, added) in enumerate(parts)
    ]


def _matches(before: Sequence[str], after: Sequence[str]) -> Iterator[Part]:
    for kind, i, j, k, m in opcodes(before, after):
        removed, added = "".join(before[i:j]), "".join(after[k:m])
        yield (removed, "", "") if kind == "equal" else ("", removed, added)
