"""Items on a balance: only comparisons of two reveal anything about their weights."""

from __future__ import annotations

import math
import random
from typing import Self

from memagent.errors import ToolError
from memagent_bench.games.base import Deal, Game, query, within
from memagent_bench.games.experts import Notes, numbers
from memagent_bench.games.transcript import Call, call

LEADERS = 5


class _Balance(Game):
    """Items 1 to n, all of different weights."""

    def _weigh(self, rng: random.Random, items: int) -> list[int]:
        self._weights = rng.sample(range(items), items)
        return sorted(range(items), key=self._weights.__getitem__, reverse=True)

    @query
    def compare(self, first: int, second: int) -> str:
        """Tells which of two items is heavier. Items are named by their numbers."""
        a, b = (self._weights[within("item", item, len(self._weights))] for item in (first, second))
        if first == second:
            raise ToolError(f"first and second are both {first}; give two items")
        return f"Item {first} is {'heavier' if a > b else 'lighter'} than item {second}."


class Heaviest(_Balance):
    """Find the heaviest of n items: n - 1 comparisons."""

    name = "heaviest"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        items = difficulty + 1
        order = self._weigh(rng, items)
        task = f"There are {items} items, numbered 1 to {items}, all of different weights. Which is the heaviest?"
        return Deal(f"{task} The answer is its number.", str(order[0] + 1))


class HeaviestNotes(Notes):
    """The heaviest so far, and which item is next."""

    items: int
    best: int = 1
    at: int = 2

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        return cls(items=numbers(r"There are (\d+) items.* Which is the heaviest", task)[0])

    def next(self) -> Call | str:
        """Weighs the next item against the best."""
        if self.at > self.items:
            return str(self.best)
        return call("compare", first=self.at, second=self.best)

    def fold(self, result: str) -> Self | None:
        """Keeps the heavier one."""
        heavier = _heavier(result, self.at, self.best)
        if heavier is None:
            return None
        return self.but(best=self.at if heavier else self.best, at=self.at + 1)


class TopFive(_Balance):
    """Find the five heaviest of n items in order: n comparisons, and some for each that is among them for a while."""

    name = "top-five"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        items = LEADERS + 1
        while _comparisons(items + 1) <= difficulty:
            items += 1
        order = self._weigh(rng, items)
        task = f"There are {items} items, numbered 1 to {items}, all of different weights. Which are the {LEADERS} "
        answer = ", ".join(str(item + 1) for item in order[:LEADERS])
        return Deal(
            f"{task}heaviest? The answer is their numbers, heaviest first: 1, 2, 3.", answer
        )


def _comparisons(items: int) -> float:
    """Estimates the expert's comparisons: one per item, more for the k/m of the m-th items that enter the list of k."""
    return items + 2 + 2.3 * LEADERS * math.log(items / LEADERS)


class TopFiveNotes(Notes):
    """The leaders, heaviest first, and the range of places for the next item."""

    items: int
    leaders: tuple[int, ...] = (1,)
    at: int = 2
    low: int = 0
    high: int = 1

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        pattern = rf"There are (\d+) items.* Which are the {LEADERS} heaviest"
        return cls(items=numbers(pattern, task)[0])

    def next(self) -> Call | str:
        """Weighs the next item against the last leader, then finds its place by bisection."""
        if self.at > self.items:
            return ", ".join(map(str, self.leaders))
        return call("compare", first=self.at, second=self.leaders[self._place()])

    def fold(self, result: str) -> Self | None:
        """Narrows the range of places; inserts the item when one is left."""
        place = self._place()
        heavier = _heavier(result, self.at, self.leaders[place])
        if heavier is None:
            return None
        low, high = (self.low, place) if heavier else (place + 1, self.high)
        if low < high:
            return self.but(low=low, high=high)
        leaders = (*self.leaders[:low], self.at, *self.leaders[low:])[:LEADERS]
        return self.but(leaders=leaders, at=self.at + 1, low=0, high=len(leaders))

    def _place(self) -> int:
        # Most items are lighter than all leaders, so the last one is asked first.
        fresh = (self.low, self.high) == (0, LEADERS)
        return LEADERS - 1 if fresh else (self.low + self.high) // 2


def _heavier(result: str, first: int, second: int) -> bool | None:
    for heavier, text in ((True, "heavier"), (False, "lighter")):
        if result == f"Item {first} is {text} than item {second}.":
            return heavier
    return None
