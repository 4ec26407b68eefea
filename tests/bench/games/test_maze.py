"""The maze and the hand at its wall."""

from __future__ import annotations

import pytest
from tests.bench.games.forgetting import call, native, told

from memagent.messages import Message, ToolCall
from memagent.tools import Toolset
from memagent_bench.games import expert, make
from memagent_bench.games.maze import WAYS, Maze, right_hand


@pytest.mark.parametrize(
    ("heading", "ways", "expected"),
    [
        (0, "east north", 1),
        (0, "north west", 0),
        (0, "west south", 3),
        (0, "south", 2),
        (3, "south north", 0),
    ],
)
def test_the_right_hand_rule(heading: int, ways: str, expected: int) -> None:
    assert right_hand(heading, ways.split()) == expected


@pytest.mark.parametrize("seed", range(4))
async def test_ways_go_both_ways_and_make_no_circle(seed: int) -> None:
    game = Maze(seed=seed, difficulty=100)
    ways: dict[tuple[int, int], set[tuple[int, int]]] = {}

    async def walk(cell: tuple[int, int]) -> None:
        """Walks every way from a cell, and back."""
        text = await told(game, "look")
        ways[cell] = {
            (cell[0] + WAYS[way][0], cell[1] + WAYS[way][1]) for way in WAYS if way in text
        }
        for way, (down, right) in WAYS.items():
            other = cell[0] + down, cell[1] + right
            if way in text and other not in ways:
                await told(game, "move", direction=way)
                await walk(other)
                back = next(name for name, step in WAYS.items() if step == (-down, -right))
                assert text.partition("you")[2] in await told(game, "move", direction=back)

    await walk((0, 0))
    assert all(cell in ways[other] for cell, others in ways.items() for other in others)
    assert sum(map(len, ways.values())) == 2 * (len(ways) - 1)


async def test_a_wall_lets_nobody_through_and_looking_changes_nothing() -> None:
    game = Maze(seed=1, difficulty=30)
    tools = Toolset(game.tools)
    first = (await tools.run(call("look"))).text
    shut = next(way for way in WAYS if way not in first)
    assert "there is a wall" in (await tools.run(call("move", direction=shut))).text
    assert "one of north, east" in (await tools.run(call("move", direction="up"))).text
    assert (await tools.run(call("look"))).text == first
    open_way = next(way for way in WAYS if way in first)
    moved = (await tools.run(call("move", direction=open_way))).text
    assert moved.startswith("Step 1: you are at a place with ways to the ")
    assert (await tools.run(call("look"))).text == moved


async def test_an_expert_that_lost_all_notes_looks_where_it_is_and_finds_the_sign() -> None:
    game, player = make("maze", seed=2, difficulty=60), expert("maze")
    tools = Toolset(game.tools)
    task = Message(role="user", content=game.task)
    messages = [task]
    for step in range(400):
        reply = player.reply(messages)
        if not isinstance(reply, ToolCall):
            break
        messages += native([(reply, (await tools.run(reply)).text)])
        if step == 20:
            messages = [task]
    assert isinstance(reply, str)
    assert game.finish(reply)
