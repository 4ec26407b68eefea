"""Playing with the whole history."""

from __future__ import annotations

from memagent.messages import ToolCall
from memagent_bench.games import Played, expert, make, play
from memagent_bench.games.play import turn


async def test_an_expert_plays_to_the_end() -> None:
    assert await play(make("deck", seed=1, difficulty=12), expert("deck")) == Played(1.0, 12)


async def test_too_few_steps_leave_it_unsolved() -> None:
    environment = make("deck", seed=1, difficulty=12)
    assert await play(environment, expert("deck"), max_steps=11) == Played(0.0, 11)
    assert not environment.over
    # The cards that were drawn do not come back, so that another expert finds no end either.
    assert await play(environment, expert("deck"), max_steps=30) == Played(0.0, 41)


async def test_a_game_that_is_over_is_not_played() -> None:
    environment = make("deck", seed=1, difficulty=12)
    environment.finish("1, 2")
    assert await play(environment, expert("deck")) == Played(0.0, 0)


async def test_a_turn_is_a_call_and_its_result() -> None:
    environment = make("deck", seed=1, difficulty=12)
    wish = ToolCall(id="x", name="draw", arguments="{}")
    asked, told = await turn(environment, wish)
    assert asked.tool_calls == (wish,)
    assert (told.role, told.tool_call_id) == ("tool", "x")
    assert told.content.startswith("Draw 1: the card ")
