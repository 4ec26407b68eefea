"""A table with rising rows and columns, and lists of readings that are corrected later."""

from __future__ import annotations

import random
import re
from bisect import bisect_right
from itertools import accumulate
from typing import Self

from memagent_bench.games.base import Deal, Game, query, within
from memagent_bench.games.experts import Notes, numbers
from memagent_bench.games.transcript import Call, call

CELL = re.compile(r"Row (\d+), column (\d+) holds (\d+)\.")
READING = re.compile(r"Reading (\d+): (\d+)(?:; reading (\d+) was wrong, it is (\d+))?\.")
SPAN = 4
"""Maximum number of readings by which a correction may be late."""


class Staircase(Game):
    """Count the small cells of a table of n/2 rows and columns: a walk from corner to corner."""

    name = "staircase"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        size = difficulty // 2 + 1
        steps = [rng.randint(1, 9) for _ in range(size)]
        # Both directions rise by the same total, so that the walk ends near the opposite corner.
        self._rows = list(accumulate(rng.sample(steps, size)))
        self._columns = list(accumulate(rng.sample(steps, size)))
        bound = self._rows[-1] + rng.randint(5, 10)
        small = sum(bisect_right(self._columns, bound - row) for row in self._rows)
        task = (
            f"A table has {size} rows and {size} columns, numbered from 1. Its cells rise along each row and down each "
            f"column. How many cells hold at most {bound}?"
        )
        return Deal(task, str(small))

    @query
    def cell(self, row: int, column: int) -> str:
        """Tells what a cell of the table holds."""
        i = within("row", row, len(self._rows))
        j = within("column", column, len(self._columns))
        return f"Row {row}, column {column} holds {self._rows[i] + self._columns[j]}."


class StaircaseNotes(Notes):
    """Where the walk is, and the count of cells in the rows above."""

    size: int
    bound: int
    row: int = 1
    column: int
    count: int = 0

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        size = numbers(r"A table has (\d+) rows", task)[0]
        return cls(size=size, bound=numbers(r"hold at most (\d+)", task)[0], column=size)

    def next(self) -> Call | str:
        """Looks at the current cell."""
        if self.row > self.size or self.column < 1:
            return str(self.count)
        return call("cell", row=self.row, column=self.column)

    def fold(self, result: str) -> Self | None:
        """Goes left while cells are too large, else down."""
        match = CELL.fullmatch(result)
        if match is None or (int(match[1]), int(match[2])) != (self.row, self.column):
            return None
        if int(match[3]) > self.bound:
            return self.but(column=self.column - 1)
        return self.but(row=self.row + 1, count=self.count + self.column)


class Drawdown(Game):
    """Find the largest fall in n readings, some of which are corrected a little later."""

    name = "drawdown"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        level, true, self._texts = 500, list[int](), list[str]()
        for at in range(difficulty):
            level = min(990, max(10, level + rng.randint(-60, 60)))
            true.append(level)
            self._texts.append(f"Reading {at + 1}: {level}")
            back = at - rng.randint(1, SPAN)
            if rng.random() < 0.25 and back >= 0:
                true[back] = min(990, max(10, true[back] + rng.randint(-60, 60)))
                self._texts[at] += f"; reading {back + 1} was wrong, it is {true[back]}"
        highs = accumulate(true, max)
        fall = max(high - low for high, low in zip(highs, true, strict=True))
        task = (
            f"There are {difficulty} readings, numbered 1 to {difficulty}. Some say that one of the {SPAN} before was "
            "wrong, and put it right. What is the largest fall, from any right reading to a later one?"
        )
        return Deal(task, str(fall))

    @query
    def reading(self, number: int) -> str:
        """Tells a reading, and whether an earlier one was wrong."""
        return f"{self._texts[within('reading', number, len(self._texts))]}."


class DrawdownNotes(Notes):
    """Readings that may still be corrected; of those before them, the highest reading and the largest fall."""

    readings: int
    at: int = 1
    recent: tuple[int, ...] = ()
    high: int = 0
    fall: int = 0

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        return cls(readings=numbers(r"There are (\d+) readings", task)[0])

    def next(self) -> Call | str:
        """Asks for the next reading."""
        if self.at <= self.readings:
            return call("reading", number=self.at)
        notes = self
        while notes.recent:
            notes = notes._drop_first()
        return str(notes.fall)

    def fold(self, result: str) -> Self | None:
        """Applies a correction, and settles the readings that can no longer be corrected."""
        match = READING.fullmatch(result)
        if match is None or int(match[1]) != self.at:
            return None
        recent = [*self.recent, int(match[2])]
        if match[3] is not None:
            recent[int(match[3]) - self.at - 1] = int(match[4])
        notes = self.but(at=self.at + 1, recent=tuple(recent))
        return notes if len(recent) <= SPAN else notes._drop_first()

    def _drop_first(self) -> Self:
        first, *rest = self.recent
        high = max(self.high, first)
        return self.but(recent=tuple(rest), high=high, fall=max(self.fall, high - first))
