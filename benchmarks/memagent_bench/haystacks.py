"""Haystacks: sentences of books, one repeated line, or distinct lines."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Protocol

import numpy as np
import regex
from numpy.typing import NDArray

from memagent.cli.needle import book
from memagent.documents import open_document
from memagent.errors import ConfigError
from memagent.threads import run_sync
from memagent.tokens import TokenCounter
from memagent_bench.filler import Filler

BOOK_NAME = "War and Peace (public domain, for lack of RULER's essays)"
_PARAGRAPH = regex.compile(r"\n\s*\n")
_ENDS = regex.compile(r"[.!?…。！？]")
# After a sentence-ending sign and closing quotes, before a capital; but not after titles and initials.
_BREAK = regex.compile(
    r"""(?<=[.!?…]["'”’)\]]{0,3})(?<!\b(?:Mr|Mrs|Ms|Dr|St|Prof|vs|\p{Lu})\.)[ ](?=["'“‘(\[]*[\p{Lu}\p{N}])"""
    r"|(?<=[。！？][」』”’]?)(?![」』”’。！？])",
    regex.VERSION1,
)


class Haystack(Protocol):
    """Units of text to hide needles among."""

    @property
    def filler(self) -> Filler:
        """The units, counted and joined."""
        ...

    def lay(self, room: int, rng: Random, without: Sequence[str]) -> tuple[list[str], int]:
        """Returns the units of one sample and the sum of their costs, at most `room` tokens.

        Args:
            room: tokens.
            rng: draws the units; haystacks in a fixed order don't use it.
            without: texts that no drawn unit may contain.
        """
        ...

    def rounds(self, room: int) -> int:
        """Returns how often a text of `room` tokens goes through the units; 1 if none is repeated."""
        ...


class FixedHaystack:
    """The first units of a filler, the same in every sample, repeated if there are too few."""

    def __init__(self, filler: Filler) -> None:
        self.filler = filler

    def lay(self, room: int, rng: Random, without: Sequence[str]) -> tuple[list[str], int]:
        """See `Haystack`."""
        n = self.filler.within(room + self.filler.edge)
        return self.filler.take(0, n), self.filler.tokens(n) - self.filler.edge if n else 0

    def rounds(self, room: int) -> int:
        """See `Haystack`."""
        return self.filler.rounds(self.filler.within(room))


class ShuffledHaystack:
    """A pool of distinct units, each counted once; each sample has some of them in its own order.

    Args:
        filler: the pool.
        nested: a larger room adds units, among those that a smaller one has in the same order. (Then all
            samples have the same units.)
    """

    def __init__(self, filler: Filler, *, nested: bool) -> None:
        self.filler = filler
        self._nested = nested
        # Indexing an array of texts is three times as fast as a list.
        self._units = np.array(filler.take(0, len(filler)), dtype=object)
        sums = [filler.tokens(n + 1) for n in range(len(filler))]
        self._costs = np.diff(np.array(sums, dtype=np.int64), prepend=filler.edge)

    def lay(self, room: int, rng: Random, without: Sequence[str]) -> tuple[list[str], int]:
        """See `Haystack`."""
        # Every unit always has a random key, however many fit, so a longer order contains a shorter one.
        # The bits are those of Python's generator, which no later version will change.
        keys = np.frombuffer(rng.randbytes(8 * len(self._units)), dtype="<u8")
        if self._nested:
            order = np.argsort(keys[: _count_fitting(self._costs, room)], kind="stable")
        else:
            order = np.argsort(keys, kind="stable")
            order = order[: _count_fitting(self._costs[order], room)]
        units: list[str] = self._units[order].tolist()
        cost = int(self._costs[order].sum())
        # Rarely does one have to go, and searching one long text is faster than many short ones.
        hay = self.filler.joiner.join(units)
        for text in without:
            for unit in [unit for unit in units if text in unit] if text in hay else []:
                units.remove(unit)
                cost -= self.filler.cost(unit)
        return units, cost

    def rounds(self, room: int) -> int:
        """See `Haystack`."""
        return 1


def _count_fitting(costs: NDArray[np.int64], room: int) -> int:
    """Counts how many of the first units fit."""
    return int(np.searchsorted(np.cumsum(costs), room, side="right"))


def sentences(text: str) -> list[str]:
    """Splits a text into sentences, each on one line; drops paragraphs without any (titles, tables of contents)."""
    parts: list[str] = []
    for paragraph in _PARAGRAPH.split(text):
        if _ENDS.search(paragraph):
            parts += [part for part in _BREAK.split(" ".join(paragraph.split())) if part]
    return parts


@lru_cache(maxsize=2)
def essays(paths: tuple[Path, ...], counter: TokenCounter) -> Filler:
    """Returns the sentences of the user's texts, one after another, or of the shipped book if there are no texts.

    A path is a text file, gzipped or not, or JSON with the text under `text`, as RULER keeps its essays.

    Raises:
        DocumentError: a path cannot be read as text.
        ConfigError: the texts contain no sentence.
    """
    if not paths:
        return Filler(BOOK_NAME, sentences(book()), " ", counter)
    texts = [_read(path) for path in paths]
    digest = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:8]
    name = f"{', '.join(path.name for path in paths)} (sha256 {digest})"
    return Filler(name, [s for text in texts for s in sentences(text)], " ", counter)


def _read(path: Path) -> str:
    document = open_document(path)

    async def join_pieces() -> str:
        return "".join([piece async for piece in document.pieces()])

    text = run_sync(join_pieces())
    if not text.lstrip().startswith("{"):
        return text
    try:
        content = json.loads(text)["text"]
    except (ValueError, KeyError, RecursionError) as error:
        raise ConfigError(
            f"{str(path)!r} looks like JSON, but is not an object with the essays under 'text'; "
            f"give the text itself in a file"
        ) from error
    if not isinstance(content, str):
        raise ConfigError(f"'text' in {str(path)!r} must be a string")
    return content
