"""The words of RULER's list of common words, drawn so that samples of one length have the same tokens."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from random import Random

import numpy as np

from memagent_bench.fitted import Order, objects, shuffle_range
from memagent_bench.ruler.words import word_list

ENGLISH = "data/english_words.txt.gz"


@cache
def wonderwords() -> tuple[str, ...]:
    """Returns the distinct nouns, adjectives and verbs of wonderwords: 8,169 words.

    Raises:
        ConfigError: wonderwords is not installed.
    """
    lists = ("noun", "adjective", "verb")
    return tuple(sorted({word for name in lists for word in word_list(name)} - {""}))


@cache
def english() -> tuple[str, ...]:
    """Returns the English words of 3 to 12 letters (source and licence: data/README.md): 314,667 of them."""
    packed = resources.files("memagent_bench").joinpath(ENGLISH).read_bytes()
    return tuple(gzip.decompress(packed).decode().split())


@cache
def list_further() -> tuple[str, ...]:
    """Returns the English words that wonderwords doesn't have."""
    words = set(wonderwords())
    return tuple(word for word in english() if word not in words)


class Vocabulary:
    """Distinct words, each counted once.

    Args:
        words: in any order.
        cost: tokens that a word takes in context.
    """

    def __init__(self, words: Sequence[str], cost: Callable[[str], int]) -> None:
        self.words = objects(words)
        self.costs = np.fromiter(map(cost, words), dtype=np.int64, count=len(words))
        self._members = {int(of): np.flatnonzero(self.costs == of) for of in np.unique(self.costs)}

    def __len__(self) -> int:
        return len(self.words)

    def draw(self, costs: Order, rng: Random) -> Order:
        """Draws distinct words at random, each with the cost given for its place.

        A longer `costs` adds words to those of a shorter one.

        Args:
            costs: of some of the words.
            rng: advanced by the same amount whatever the costs.
        """
        seed = rng.getrandbits(64)
        drawn = np.empty_like(costs)
        for cost, members in self._members.items():
            places = np.flatnonzero(costs == cost)
            if len(places):
                chosen = draw_distinct(len(members), len(places), Random(f"{seed}:{cost}"))
                drawn[places] = members[chosen]
        return drawn


def draw_distinct(n: int, k: int, rng: Random) -> Order:
    """Returns the first k of 0..n-1 in random order; a larger k only adds to them.

    Draws numbers until there are k different ones. Only a k near n takes more than the expected number of draws
    (each new number is one of the n - i that are left): then the missing ones follow in their own random order.
    """
    order = np.empty(0, dtype=np.int64)
    enough = 2 * n if k > n * 3 // 4 else int(-n * np.log1p(-k / n) * 1.02) + 100
    bits = rng.getrandbits(64)
    for draws in (min(enough, 2 * n), 2 * n):
        keys = np.frombuffer(Random(bits).randbytes(4 * draws), dtype="<u4")
        drawn = ((keys * np.uint64(n)) >> np.uint64(32)).astype(np.int64)
        when = np.arange(draws)
        first = np.full(n, -1)
        first[drawn[::-1]] = when[::-1]  # if a number occurs twice, the last write wins
        order = drawn[first[drawn] == when]
        if len(order) >= k:
            return order[:k]
        if draws == 2 * n:
            unseen = np.flatnonzero(first < 0)
            order = np.concatenate([order, unseen[shuffle_range(len(unseen), rng)]])
    return order[:k]
