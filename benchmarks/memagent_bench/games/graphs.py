"""Boxes that lead to boxes, and a tree: each call reveals the links of one place."""

from __future__ import annotations

import random
import re
from itertools import pairwise
from typing import Self

from memagent.errors import ToolError
from memagent.texts import quote
from memagent_bench.games.base import Deal, Game, query
from memagent_bench.games.experts import Notes, word
from memagent_bench.games.transcript import Call, call
from memagent_bench.games.words import make_names

NONE = "none"
BOX = re.compile(r"Box (\w+) has (\d+) coins; left leads to (\w+), right to (\w+)\.")
NODE = re.compile(r"Node (\w+) has the value (\d+); first child: (\w+), next sibling: (\w+)\.")
DEPTH = 8


class Boxes(Game):
    """Follow boxes that lead to boxes; the direction depends on all coins so far: n boxes."""

    name = "boxes"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        names = make_names(rng, difficulty + difficulty // 2)
        path, others = names[:difficulty], names[difficulty:]
        self._boxes = {
            name: (rng.randint(1, 9), rng.choice(names), rng.choice(names)) for name in others
        }
        total = 0
        for place, name in enumerate(path):
            coins, onward, astray = rng.randint(1, 9), NONE, NONE
            total += coins
            if place + 1 < len(path):
                onward, astray = path[place + 1], rng.choice(others)
            self._boxes[name] = (coins, *((astray, onward) if total % 2 else (onward, astray)))
        task = (
            f"Start at the box {path[0]}. Count the coins of each box that you come to. As long as the count, with "
            "the box that you are at, is even, go on to the left; if it is odd, to the right. The way ends at a box "
            f"that leads to {NONE}. What is the count at the end?"
        )
        return Deal(task, str(total))

    @query
    def open(self, box: str) -> str:
        """Tells how many coins a box has, and where left and right lead."""
        if box not in self._boxes:
            raise ToolError(f"there is no box {quote(box)}")
        coins, left, right = self._boxes[box]
        return f"Box {box} has {coins} coins; left leads to {left}, right to {right}."


class BoxesNotes(Notes):
    """The next box, and the coins so far."""

    box: str
    coins: int = 0

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        return cls(box=word(r"Start at the box (\w+)\.", task))

    def next(self) -> Call | str:
        """Opens the next box."""
        return str(self.coins) if self.box == NONE else call("open", box=self.box)

    def fold(self, result: str) -> Self | None:
        """Adds the coins, and follows the direction that the total gives."""
        match = BOX.fullmatch(result)
        if match is None or match[1] != self.box:
            return None
        coins = self.coins + int(match[2])
        return self.but(box=match[4] if coins % 2 else match[3], coins=coins)


class Tree(Game):
    """Add up the leaves of a tree of n nodes."""

    name = "tree"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        names = make_names(rng, difficulty)
        values = [rng.randint(1, 99) for _ in names]
        children: list[list[int]] = [[] for _ in names]
        inner, depths = [0], [0]
        for node in range(1, len(names)):
            parent = rng.choice(inner[-12:])
            children[parent].append(node)
            depths.append(depths[parent] + 1)
            if depths[node] < DEPTH:
                inner.append(node)
        after = {a: names[b] for row in children for a, b in pairwise(row)}
        self._nodes = {
            name: (values[i], names[children[i][0]] if children[i] else NONE, after.get(i, NONE))
            for i, name in enumerate(names)
        }
        leaves = sum(value for value, row in zip(values, children, strict=True) if not row)
        task = f"The root of a tree is the node {names[0]}. What is the sum of the values of its leaves, the nodes"
        return Deal(f"{task} that have no child?", str(leaves))

    @query
    def node(self, name: str) -> str:
        """Tells a node's value, its first child and its next sibling."""
        if name not in self._nodes:
            raise ToolError(f"there is no node {quote(name)}")
        value, child, sibling = self._nodes[name]
        return f"Node {name} has the value {value}; first child: {child}, next sibling: {sibling}."


class TreeNotes(Notes):
    """Nodes to return to, at most one per level of the tree, and the sum."""

    todo: tuple[str, ...]
    total: int = 0

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        return cls(todo=(word(r"root of a tree is the node (\w+)\.", task),))

    def next(self) -> Call | str:
        """Asks for the node that was noted last."""
        return call("node", name=self.todo[-1]) if self.todo else str(self.total)

    def fold(self, result: str) -> Self | None:
        """Notes the sibling for later, and descends to the child."""
        match = NODE.fullmatch(result)
        if match is None or match[1] != self.todo[-1]:
            return None
        leaf = match[3] == NONE
        ahead = tuple(name for name in (match[4], match[3]) if name != NONE)
        total = self.total + int(match[2]) * leaf
        return self.but(todo=(*self.todo[:-1], *ahead), total=total)
