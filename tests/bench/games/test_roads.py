"""A land of towns and roads."""

from __future__ import annotations

import re

import pytest
from tests.bench.games.forgetting import call, told

from memagent.tools import Toolset
from memagent_bench.games.roads import WIDTH, Roads, find_shortest

Land = dict[str, list[tuple[str, int]]]


async def explored(game: Roads, start: str) -> Land:
    """The roads of each town that is reached, with their hours."""
    land, todo = Land(), [start]
    while todo:
        town = todo.pop()
        roads = re.findall(r"(\w+) in (\d+) hours", await told(game, "roads", town=town))
        land[town] = [(end, int(hours)) for end, hours in roads]
        todo += [end for end, _ in land[town] if end not in land]
    return land


def ways(land: Land, town: str, goal: str) -> list[tuple[int, int]]:
    """Roads and hours of all ways."""
    if town == goal:
        return [(0, 0)]
    return [
        (roads + 1, hours + more)
        for end, hours in land[town]
        for roads, more in ways(land, end, goal)
    ]


@pytest.mark.parametrize("seed", range(5))
async def test_the_shortest_of_all_ways_is_wanted(seed: int) -> None:
    game = Roads(seed=seed, difficulty=25)
    start, goal = game.task.split("way from ")[1].split(" take")[0].split(" to ")
    land = await explored(game, start)
    found = ways(land, start, goal)
    assert {roads for roads, _ in found} == {25 // WIDTH + 1}
    assert len(land) == 26
    assert game.finish(str(min(hours for _, hours in found)))


def test_shortest_takes_the_best_of_several_roads() -> None:
    roads = {"a": [("c", 5), ("d", 1)], "b": [("c", 1)]}
    assert find_shortest({"a": 2, "b": 9}, roads) == {"c": 7, "d": 3}


async def test_a_town_tells_its_roads() -> None:
    game = Roads(seed=0, difficulty=10)
    start, goal = game.task.split("way from ")[1].split(" take")[0].split(" to ")
    tools = Toolset(game.tools)
    text = (await tools.run(call("roads", town=start))).text
    assert text.startswith(f"From {start}: ")
    assert text.count(" hours") == WIDTH
    assert (await tools.run(call("roads", town=goal))).text == f"From {goal}: no roads."
    assert not (await tools.run(call("roads", town="rome"))).ok
