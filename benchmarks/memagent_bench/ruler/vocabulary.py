"""The words that RULER's list of common words is made of, drawn so that samples of one length have the same tokens."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from random import Random

import numpy as np

from memagent_bench.fitted import Order, objects, shuffled
from memagent_bench.ruler.words import word_list

ENGLISH = "data/english_words.txt.gz"


@cache
def wonderwords() -> tuple[str, ...]:
    """The nouns, adjectives and verbs of wonderwords, each once: 8,169 words.

    Raises:
        ConfigError: wonderwords is not installed.
    """
    lists = ("noun", "adjective", "verb")
    return tuple(sorted({word for name in lists for word in word_list(name)} - {""}))


@cache
def english() -> tuple[str, ...]:
    """English words of 3 to 12 letters (source and licence: data/README.md): 314,667 of them."""
    packed = resources.files("memagent_bench").joinpath(ENGLISH).read_bytes()
    return tuple(gzip.decompress(packed).decode().split())


@cache
def further() -> tuple[str, ...]:
    """The English words that wonderwords has not."""
    known = set(wonderwords())
    return tuple(word for word in english() if word not in known)


class Vocabulary:
    """Distinct words, each counted once.

    Args:
        words: in any order.
        cost: tokens that a word takes in its place.
    """

    def __init__(self, words: Sequence[str], cost: Callable[[str], int]) -> None:
        self.words = objects(words)
        self.costs = np.fromiter(map(cost, words), dtype=np.int64, count=len(words))
        self._narrow = self.costs.astype(np.int32)  # half as much to move at each draw

    def __len__(self) -> int:
        return len(self.words)

    def draw(self, costs: Order, rng: Random) -> Order:
        """Words at random, none twice, each of the cost that is given for its place.

        More costs add words to those that fewer would give.

        Args:
            costs: of some of the words.
            rng: advanced by the same amount whatever the costs.
        """
        order = shuffled(len(self), rng)
        ordered = self._narrow[order]
        drawn = np.empty_like(costs)
        for cost in np.unique(costs):
            places = np.flatnonzero(costs == cost)
            drawn[places] = order[np.flatnonzero(ordered == cost)[: len(places)]]
        return drawn
