"""Hidden numbers; each guess reveals whether it is too low or too high."""

from __future__ import annotations

import random
import re
from typing import Self

from memagent_bench.games.base import Deal, Game, act, query, within
from memagent_bench.games.experts import Notes, numbers
from memagent_bench.games.transcript import Call, call

HIGHEST = 500
PACE = 3
FAR = 10**6
"""Upper bound of the hidden numbers in any game that ends, so results that repeat a guess are short."""
HINTS = {-1: "too low", 0: "right", 1: "too high"}
HINTED = re.compile(r"Guess (\d+): (\d+) is (too low|right|too high)\.")


def guesses(number: int) -> int:
    """Returns how many guesses bisection of 1 to `HIGHEST` needs to hit a number."""
    low, high, count = 1, HIGHEST, 1
    while (middle := (low + high) // 2) != number:
        low, high = (middle + 1, high) if middle < number else (low, middle - 1)
        count += 1
    return count


def deal_numbers(rng: random.Random, difficulty: int) -> list[int]:
    """Draws numbers that take `difficulty` guesses in total, as closely as the last one allows."""
    drawn_numbers: list[int] = []
    budget = difficulty
    while budget > 0:
        number = rng.randint(1, HIGHEST)
        if drawn_numbers and guesses(number) // 2 > budget:
            break
        drawn_numbers.append(number)
        budget -= guesses(number)
    return drawn_numbers


class Locks(Game):
    """Open n locks, each by a number of its own: 8 tries a lock."""

    name = "locks"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        self._keys = deal_numbers(rng, difficulty)
        task = (
            f"There are {len(self._keys)} locks. Each opens at one whole number from 1 to {HIGHEST}, and says whether "
            "another number is too low or too high. What is the sum of the numbers at which the locks open?"
        )
        return Deal(task, str(sum(self._keys)))

    @query
    def turn(self, lock: int, number: int) -> str:
        """Tries a number at a lock. Locks are numbered from 1."""
        key = self._keys[within("lock", lock, len(self._keys))]
        within("number", number, HIGHEST)
        return f"Lock {lock}: {number} is {HINTS[(number > key) - (number < key)]}."


class LocksNotes(Notes):
    """The current lock, the range of its number, and the sum of the numbers before."""

    locks: int
    lock: int = 1
    low: int = 1
    high: int = HIGHEST
    total: int = 0

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        return cls(locks=numbers(r"There are (\d+) locks", task)[0])

    def next(self) -> Call | str:
        """Tries the middle."""
        if self.lock > self.locks:
            return str(self.total)
        return call("turn", lock=self.lock, number=self._middle())

    def fold(self, result: str) -> Self | None:
        """Halves the range, or continues with the next lock."""
        middle = self._middle()
        hint = result.removeprefix(f"Lock {self.lock}: {middle} is ").removesuffix(".")
        if hint == HINTS[0]:
            return self.but(lock=self.lock + 1, low=1, high=HIGHEST, total=self.total + middle)
        if hint == HINTS[-1]:
            return self.but(low=middle + 1)
        return self.but(high=middle - 1) if hint == HINTS[1] else None

    def _middle(self) -> int:
        return (self.low + self.high) // 2


class Drift(Game):
    """Hit n numbers, each of which grows by 3 after every guess: 8 guesses a number."""

    name = "drift"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        # Growing numbers, with guesses that grow along, take as many guesses as fixed ones.
        self._numbers = deal_numbers(rng, difficulty)
        self._hits = self._guesses = self._grown = 0
        task = (
            f"A whole number from 1 to {HIGHEST} is hidden. After each guess that is too low or too high, it grows by "
            f"{PACE}. When it is guessed right, another one from 1 to {HIGHEST} is hidden, {len(self._numbers)} in "
            "all. What is the sum of these numbers, each as it was before it grew?"
        )
        return Deal(task, str(sum(self._numbers)))

    @act
    def guess(self, number: int) -> str:
        """Guesses the hidden number. It grows if the guess is wrong."""
        within("number", number, FAR)
        self._guesses += 1
        if self._hits == len(self._numbers):
            return f"Guess {self._guesses}: nothing is hidden any more."
        hidden = self._numbers[self._hits] + self._grown
        hint = (number > hidden) - (number < hidden)
        grown = self._grown + PACE
        self._hits, self._grown = (self._hits, grown) if hint else (self._hits + 1, 0)
        return f"Guess {self._guesses}: {number} is {HINTS[hint]}."


class DriftNotes(Notes):
    """Numbers left, guesses made, the range of the hidden number at first, its growth, and the sum."""

    left: int
    made: int = 0
    low: int = 1
    high: int = HIGHEST
    grown: int = 0
    total: int = 0

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        return cls(left=numbers(r"is hidden, (\d+) in all", task)[0])

    def next(self) -> Call | str:
        """Guesses the middle, plus the growth so far."""
        return call("guess", number=self._middle() + self.grown) if self.left else str(self.total)

    def fold(self, result: str) -> Self | None:
        """Halves the range, or starts with the next number."""
        match, middle, turn = HINTED.fullmatch(result), self._middle(), self.made + 1
        if match is None or int(match[1]) != turn:
            return None
        if match[3] == HINTS[0]:
            fresh = self.but(left=self.left - 1, made=turn, total=self.total + middle)
            return fresh.but(low=1, high=HIGHEST, grown=0)
        low, high = (middle + 1, self.high) if match[3] == HINTS[-1] else (self.low, middle - 1)
        return self.but(made=turn, low=low, high=high, grown=self.grown + PACE)

    def _middle(self) -> int:
        return (self.low + self.high) // 2
