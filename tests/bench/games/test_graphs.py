"""Boxes and trees."""

from __future__ import annotations

import re

import pytest
from tests.bench.games.forgetting import call, told

from memagent.tools import Toolset
from memagent_bench.games.graphs import DEPTH, NONE, Boxes, Tree


def start_of(game: Boxes) -> str:
    return game.task.split("Start at the box ")[1].split(".")[0]


async def opened(game: Boxes, box: str) -> tuple[int, str, str]:
    """Coins of a box, and where left and right lead."""
    words = re.findall(r"\w+", await told(game, "open", box=box))
    return int(words[3]), words[-4], words[-1]


async def node(game: Tree, name: str) -> tuple[int, str, str]:
    """Value, first child and next sibling."""
    words = re.findall(r"\w+", await told(game, "node", name=name))
    return int(words[5]), words[-4], words[-1]


@pytest.mark.parametrize("seed", range(4))
async def test_the_way_of_boxes_is_as_long_as_is_wanted(seed: int) -> None:
    game = Boxes(seed=seed, difficulty=40)
    at, coins, steps = start_of(game), 0, 0
    while at != NONE:
        more, left, right = await opened(game, at)
        coins += more
        at = right if coins % 2 else left
        steps += 1
    assert steps == 40
    assert game.finish(str(coins))


async def test_the_wrong_way_leads_on_too() -> None:
    game = Boxes(seed=0, difficulty=40)
    todo, seen = [start_of(game)], dict[str, bool]()
    while todo:
        at = todo.pop()
        _, *ways = await opened(game, at)
        seen[at] = NONE in ways
        todo += [way for way in ways if way != NONE and way not in seen]
    assert len(seen) > 40
    assert sum(seen.values()) == 1


@pytest.mark.parametrize("seed", range(4))
async def test_the_leaves_of_a_tree_are_added_and_it_is_not_deep(seed: int) -> None:
    game = Tree(seed=seed, difficulty=200)

    async def leaves(name: str, depth: int) -> tuple[int, int]:
        value, child, _ = await node(game, name)
        assert depth <= DEPTH
        if child == NONE:
            return value, 1
        total, nodes = 0, 1
        while child != NONE:
            more, below = await leaves(child, depth + 1)
            total, nodes, child = total + more, nodes + below, (await node(game, child))[2]
        return total, nodes

    total, nodes = await leaves(game.task.split("is the node ")[1].split(".")[0], 0)
    assert nodes == 200
    assert game.finish(str(total))


@pytest.mark.parametrize(
    ("game", "asked"),
    [
        (Boxes(seed=0, difficulty=10), call("open", box="\u2029" + "x" * 10_000)),
        (Tree(seed=0, difficulty=10), call("node", name="none")),
    ],
)
async def test_names_that_are_not_there_are_told_shortly(game, asked) -> None:
    output = await Toolset(game.tools).run(asked)
    assert not output.ok
    assert "there is no" in output.text
    assert len(output.text) < 200
