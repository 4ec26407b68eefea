"""The parts of keys and values: adjective-noun words, 7-digit numbers, UUIDs."""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Literal, overload

from memagent.errors import ConfigError

KindName = Literal["words", "numbers", "uuids"]
WONDERWORDS = "2.2.0"
"""RULER doesn't pin a version; the lists of 3.0 differ, and with them every word that a seed draws."""
DIGITS = 7
"""Digits of a number, as published."""


def word_list(name: str) -> list[str]:
    """Returns the words of a list of wonderwords (`noun`, `adjective`, `verb`), in its order.

    Raises:
        ConfigError: wonderwords is not installed, or another version is, whose words differ.
    """
    # Only its files are needed: importing the package reads them all, with a warning on Python 3.11 and 3.12.
    spec = find_spec("wonderwords")
    installed = version("wonderwords") if spec else None
    if spec is None or not spec.submodule_search_locations or installed != WONDERWORDS:
        raise ConfigError(
            f"RULER's tasks use the words of wonderwords {WONDERWORDS}, but {installed!r} is installed: "
            f"pip install 'memagent[bench]'"
        )
    file = Path(spec.submodule_search_locations[0]) / "assets" / f"{name}list.txt"
    return [line.rstrip() for line in file.read_text(encoding="utf-8").splitlines()]


class Names(Sequence[str]):
    """All texts `adjective-noun`, sorted, without storing all six million.

    The texts of one adjective are adjacent in the sorted list, unless another adjective extends it
    (`blue` and `blue-eyed`): only the texts of such families are built and sorted.
    """

    def __init__(self, adjectives: Sequence[str], nouns: Sequence[str]) -> None:
        self._nouns = sorted(set(nouns))
        self._families: list[list[str]] = []
        for adjective in sorted(set(adjectives), key=lambda word: word + "-"):
            if self._families and adjective.startswith(self._families[-1][0] + "-"):
                self._families[-1].append(adjective)
            else:
                self._families.append([adjective])
        self._mixed = {i: self._sort(f) for i, f in enumerate(self._families) if len(f) > 1}
        sizes = (len(self._mixed.get(i, self._nouns)) for i in range(len(self._families)))
        self._starts = [0, *accumulate(sizes)]

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        i = bisect_right(self._starts, index) - 1
        place = index - self._starts[i]
        if i in self._mixed:
            return self._mixed[i][place]
        return f"{self._families[i][0]}-{self._nouns[place]}"

    def _sort(self, family: list[str]) -> list[str]:
        return sorted({f"{adjective}-{noun}" for adjective in family for noun in self._nouns})


@cache
def names() -> Names:
    """Returns RULER's words.

    Raises:
        ConfigError: see `word_list`.
    """
    return Names(word_list("adjective"), word_list("noun"))


def draw(kind: KindName, rng: Random) -> str:
    """Draws a random word, number or UUID."""
    if kind == "words":
        return rng.choice(names())
    if kind == "numbers":
        return str(rng.randint(10 ** (DIGITS - 1), 10**DIGITS - 1))
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def draw_different(kind: KindName, n: int, rng: Random) -> list[str]:
    """Draws distinct texts, none of which is part of another, since they are searched for as text."""
    texts: list[str] = []
    while len(texts) < n:
        text = draw(kind, rng)
        if not any(text in other or other in text for other in texts):
            texts.append(text)
    return texts
