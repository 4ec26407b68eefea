"""Names for the things of a game."""

from __future__ import annotations

from itertools import product
from random import Random

GOODS: tuple[str, ...] = ("bolts", "cables", "lamps", "pumps", "ropes", "tiles", "tools", "valves")
ROOMS: tuple[str, ...] = ("attic", "cellar", "garden", "hall", "kitchen", "library")
SYLLABLES = tuple(consonant + vowel for consonant, vowel in product("bdfgklmnprstvz", "aeiou"))


def make_names(rng: Random, count: int) -> list[str]:
    """Returns names of three syllables, such as `kavoru`, all different; at most 343,000."""
    base = len(SYLLABLES)
    return [
        SYLLABLES[index // base // base] + SYLLABLES[index // base % base] + SYLLABLES[index % base]
        for index in rng.sample(range(base**3), count)
    ]
