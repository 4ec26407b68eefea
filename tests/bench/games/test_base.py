"""What an environment offers, counts and judges, on a game made for it."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.bench.games.forgetting import call

from memagent.errors import ConfigError, ToolError
from memagent.tools import Toolset
from memagent_bench.games.base import Deal, Game, act, query, within


class Doors(Game):
    name = "doors"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        self.opened: list[int] = []
        self.doors = difficulty
        return Deal("Which doors?", self.wanted(rng))

    def wanted(self, rng: random.Random) -> str:
        return "Bako, 1200"

    @act
    def open(self, door: int) -> str:
        """Opens a door."""
        self.opened.append(within("door", door, self.doors))
        return f"Door {door} is open."


class More(Doors):
    name = "more"

    @query
    def count(self) -> str:
        """Counts."""
        return f"{len(self.opened)} doors are open."

    def hidden(self) -> str:
        return "no tool"


def test_tools_are_the_marked_methods_inherited_ones_first_and_done() -> None:
    tools = More(seed=0, difficulty=10).tools
    assert [(tool.name, tool.idempotent) for tool in tools] == [
        ("open", False),
        ("count", True),
        ("done", True),
    ]
    assert tools[0].spec.description == "Opens a door."
    assert tools[0].spec.parameters["properties"] == {"door": {"type": "integer"}}
    assert tools[0].spec.parameters["required"] == ["door"]


class Unmarked(Game):
    name = "unmarked"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        return Deal("", "")


def test_a_game_without_a_marked_method_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"'unmarked' offers no tool of its own: .* @query or @act"
    ):
        Unmarked(seed=0, difficulty=10)


def test_a_game_says_what_is_easiest() -> None:
    class Easy(More):
        easiest = 3

    assert len(Easy(seed=0, difficulty=3).tools) == 3
    for kind, difficulty in ((Easy, 2), (More, 9)):
        with pytest.raises(ConfigError, match=f"an integer from {difficulty + 1} "):
            kind(seed=0, difficulty=difficulty)


async def test_calls_count_as_steps_even_if_they_cannot_be_done() -> None:
    game = Doors(seed=0, difficulty=10)
    tools = Toolset(game.tools)
    assert (await tools.run(call("open", door=3))).text == "Door 3 is open."
    refused = await tools.run(call("open", door=11))
    assert refused.text == "open failed: there is no door 11; they are numbered 1 to 10"
    assert not refused.ok
    assert not (await tools.run(call("open", door="third"))).ok
    assert not (await tools.run(call("open"))).ok
    assert (game.steps, game.opened) == (4, [2])


async def test_done_hands_in_the_first_answer_only() -> None:
    game = Doors(seed=0, difficulty=10)
    tools = Toolset(game.tools)
    assert not (await tools.run(call("done", answer="  "))).ok
    assert not game.over
    noted = await tools.run(call("done", answer="bako,1,200"))
    assert (noted.text, noted.ok) == ("bako,1,200", True)
    assert [tool.name for tool in game.tools if tool.final] == ["done"]
    again = await tools.run(call("done", answer="Bako, 1200"))
    assert not again.ok
    assert "the game is over" in again.text
    assert not (await tools.run(call("open", door=1))).ok
    assert (game.verdict(), game.steps, game.opened) == (0.0, 0, [])


@pytest.mark.parametrize("answer", ["Bako, 1200", "bako,1200", "  BAKO ,  1200\n", "Bako, 1200."])
def test_an_answer_is_right_in_any_case_and_with_any_spaces(answer: str) -> None:
    game = Doors(seed=0, difficulty=10)
    assert game.finish(answer)
    assert (game.verdict(), game.over) == (1.0, True)


@pytest.mark.parametrize(
    "answer", ["", "Bako", "Bako 12, 00", "1200, Bako", "Bako, 12000", "\ud800"]
)
def test_another_answer_is_wrong(answer: str) -> None:
    assert not Doors(seed=0, difficulty=10).finish(answer)


def test_the_task_ends_with_how_to_answer() -> None:
    assert Doors(seed=0, difficulty=10).task.startswith("Which doors?\n\nWhen you know the answer")


@pytest.mark.parametrize("number", [0, -1, 11, 10**9, 10**4000])
def test_a_number_that_is_not_there_is_told_shortly(number: int) -> None:
    with pytest.raises(ToolError, match="there is no door") as told:
        within("door", number, 10)
    assert len(str(told.value)) < 200


def test_what_is_dealt_depends_on_name_seed_and_difficulty() -> None:
    class Drawn(Doors):
        def wanted(self, rng: random.Random) -> str:
            self.drawn = str(rng.random())
            return self.drawn

    class Other(Drawn):
        name = "other"

    def dealt(kind: Any, seed: int, difficulty: int) -> str:
        return kind(seed=seed, difficulty=difficulty).drawn

    assert dealt(Drawn, 1, 10) == dealt(Drawn, 1, 10)
    four = {
        dealt(k, s, d)
        for k, s, d in ((Drawn, 1, 10), (Drawn, 2, 10), (Drawn, 1, 11), (Other, 1, 10))
    }
    assert len(four) == 4
