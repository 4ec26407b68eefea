"""A maze without loops: each step reveals only the ways that are open there."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Collection, Mapping
from typing import Self

from memagent.errors import ToolError
from memagent.texts import quote
from memagent_bench.games.base import Deal, Game, act, query
from memagent_bench.games.experts import Notes
from memagent_bench.games.transcript import Call, call
from memagent_bench.games.words import make_names

WAYS = {"north": (0, -1), "east": (1, 0), "south": (0, 1), "west": (-1, 0)}
"""Directions, clockwise, as (x, y) steps."""
NAMES = tuple(WAYS)
PLACE = re.compile(
    r"Step (\d+): you are at a place with ways to the ([a-z, ]+)(?:; a sign says (\w+))?\."
)

Cell = tuple[int, int]


def right_hand(heading: int, ways: Collection[str]) -> int:
    """Returns the next heading of the right-hand rule: right, else straight on, else left, else back."""
    turns = (heading + turn for turn in (1, 0, 3, 2))
    return next(turn % 4 for turn in turns if NAMES[turn % 4] in ways)


class Maze(Game):
    """Walk a maze until the sign is found: n steps with a hand at the wall."""

    name = "maze"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        # With m cells the walk around all of them has 2 (m - 1) steps.
        side = math.isqrt(difficulty) + 2
        self._ways = _dig(rng, side)
        self._at, self._steps = (side // 2, side // 2), 0
        self._goal = _walk(self._ways, self._at, difficulty - 1)
        self._sign = make_names(rng, 1)[0]
        task = "You are in a maze that has no circles. Somewhere in it is a sign with a word. What does the sign say?"
        return Deal(task, self._sign)

    @query
    def look(self) -> str:
        """Tells which ways are open where you are."""
        ways = ", ".join(way for way in NAMES if way in self._ways[self._at])
        sign = f"; a sign says {self._sign}" if self._at == self._goal else ""
        return f"Step {self._steps}: you are at a place with ways to the {ways}{sign}."

    @act
    def move(self, direction: str) -> str:
        """Goes one step north, east, south or west, and tells which ways are open there."""
        if direction not in WAYS:
            raise ToolError(
                f"direction has to be one of {', '.join(NAMES)}, not {quote(direction)}"
            )
        if direction not in self._ways[self._at]:
            raise ToolError(f"there is a wall to the {direction}; you stay where you are")
        self._at = self._ways[self._at][direction]
        self._steps += 1
        return self.look()


def _dig(rng: random.Random, side: int) -> dict[Cell, dict[str, Cell]]:
    """Digs a tree of ways over a square of cells, depth first."""
    start = (side // 2, side // 2)
    ways: dict[Cell, dict[str, Cell]] = {start: {}}
    path = [start]
    while path:
        x, y = path[-1]
        fresh = [
            (way, (x + dx, y + dy))
            for way, (dx, dy) in WAYS.items()
            if 0 <= x + dx < side and 0 <= y + dy < side and (x + dx, y + dy) not in ways
        ]
        if not fresh:
            path.pop()
            continue
        way, cell = rng.choice(fresh)
        back = NAMES[(NAMES.index(way) + 2) % 4]
        ways[x, y][way], ways[cell] = cell, {back: (x, y)}
        path.append(cell)
    return ways


def _walk(ways: Mapping[Cell, Mapping[str, Cell]], start: Cell, steps: int) -> Cell:
    """Returns the first new cell that the right-hand rule reaches after `steps` steps, or the last new one."""
    at, heading, order, step = start, 0, [start], 0
    cells = {start}
    while len(order) < len(ways) and (step < steps or at != order[-1]):
        heading = right_hand(heading, ways[at])
        at = ways[at][NAMES[heading]]
        step += 1
        if at not in cells:
            cells.add(at)
            order.append(at)
    return order[-1]


class MazeNotes(Notes):
    """Steps made, the heading of the last one, and the ways that are open now."""

    steps: int = -1
    """-1: not looked yet."""
    heading: int = 0
    ways: tuple[str, ...] = ()
    sign: str = ""

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        if "You are in a maze" not in task:
            raise ValueError("the text is not the task of a maze")
        return cls()

    def next(self) -> Call | str:
        """Looks once, then keeps the right hand at the wall."""
        if self.sign or self.steps < 0:
            return self.sign or call("look")
        return call("move", direction=NAMES[right_hand(self.heading, self.ways)])

    def fold(self, result: str) -> Self | None:
        """Takes in the place, if it is that of the next step."""
        match = PLACE.fullmatch(result)
        # The first look may come late, after a session that lost its notes.
        if match is None or (self.steps >= 0 and int(match[1]) != self.steps + 1):
            return None
        heading = right_hand(self.heading, self.ways) if self.ways else self.heading
        ways = tuple(match[2].split(", "))
        return self.but(steps=int(match[1]), heading=heading, ways=ways, sign=match[3] or "")
