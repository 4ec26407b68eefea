"""Invented names: absent from books, all of one length, so that none is part of another."""

from __future__ import annotations

from random import Random

CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
SYLLABLES = 4
"""Syllables of a name: (14 * 5) ** 4 = 24 million names of eight letters."""


def invent(count: int, rng: Random) -> list[str]:
    """Draws distinct names of eight letters, in random order, such as `Tolimeva`."""
    names: dict[str, None] = {}
    while len(names) < count:
        pairs = (rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(SYLLABLES))
        names["".join(pairs).capitalize()] = None
    return list(names)


def six_digits(count: int, rng: Random) -> list[str]:
    """Draws distinct numbers from 100000 to 999999, in random order."""
    return [str(number) for number in rng.sample(range(100_000, 1_000_000), count)]
