"""Numbers that are hidden."""

from __future__ import annotations

import json
import random

import pytest
from tests.bench.games.forgetting import call, told

from memagent.tools import Toolset
from memagent_bench.games.searches import (
    HIGHEST,
    PACE,
    Drift,
    DriftNotes,
    Locks,
    deal_numbers,
    guesses,
)
from memagent_bench.games.transcript import Call


def test_halving_takes_nine_guesses_at_most() -> None:
    counts = [guesses(number) for number in range(1, HIGHEST + 1)]
    assert counts.count(1) == 1
    assert counts[249] == 1
    assert max(counts) == 9


@pytest.mark.parametrize("difficulty", [10, 33, 100, 1000])
def test_the_numbers_take_about_as_many_guesses_as_are_wanted(difficulty: int) -> None:
    for seed in range(20):
        total = sum(map(guesses, deal_numbers(random.Random(seed), difficulty)))
        assert abs(total - difficulty) <= 5


async def test_every_lock_opens_at_one_number() -> None:
    game = Locks(seed=3, difficulty=20)
    tools = Toolset(game.tools)
    total = 0
    for lock in range(1, int(game.task.split()[2]) + 1):
        asked = [call("turn", lock=lock, number=number) for number in range(1, HIGHEST + 1)]
        hints = [(await tools.run(one)).text.split(" is ")[1] for one in asked]
        opened = hints.index("right.") + 1
        assert hints == ["too low."] * (opened - 1) + ["right."] + ["too high."] * (
            HIGHEST - opened
        )
        total += opened
    assert game.finish(str(total))


async def hidden_numbers(seed: int) -> list[int]:
    """What the easiest game of a seed hides, from a twin that is played."""
    game, found = Drift(seed=seed, difficulty=10), list[int]()
    notes = DriftNotes.start(game.task)
    while isinstance(wish := notes.next(), Call):
        after = notes.fold(await told(game, wish.name, **json.loads(wish.arguments)))
        assert after is not None
        if after.left < notes.left:
            found.append(after.total - notes.total)
        notes = after
    return found


async def test_the_hidden_number_grows_by_each_wrong_guess() -> None:
    game = Drift(seed=3, difficulty=10)
    tools = Toolset(game.tools)
    hidden, *_ = await hidden_numbers(seed=3)
    texts = [
        (await tools.run(call("guess", number=number))).text for number in (hidden + 1, hidden)
    ]
    assert texts == [f"Guess 1: {hidden + 1} is too high.", f"Guess 2: {hidden} is too low."]
    right = hidden + 2 * PACE
    assert (await tools.run(call("guess", number=right))).text == f"Guess 3: {right} is right."


async def test_guesses_behind_the_last_number_are_told_so() -> None:
    game = Drift(seed=3, difficulty=10)
    tools = Toolset(game.tools)
    numbers = await hidden_numbers(seed=3)
    for number in numbers:
        await tools.run(call("guess", number=number))
    assert (await tools.run(call("guess", number=1))).text.endswith("nothing is hidden any more.")
    assert not (await tools.run(call("guess", number=10**7))).ok
    assert game.finish(str(sum(numbers)))
