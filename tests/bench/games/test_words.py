"""Names for the things of a game."""

from __future__ import annotations

import random

from memagent_bench.games.words import GOODS, ROOMS, make_names


def test_names_are_distinct_and_the_same_for_the_same_seed() -> None:
    names = make_names(random.Random("a"), 20_000)
    assert len(set(names)) == 20_000
    assert all(name.isascii() and name.isalpha() and len(name) == 6 for name in names)
    assert names == make_names(random.Random("a"), 20_000)
    assert names != make_names(random.Random("b"), 20_000)


def test_lists_are_sorted_and_without_repetition() -> None:
    assert list(GOODS) == sorted(set(GOODS))
    assert list(ROOMS) == sorted(set(ROOMS))
