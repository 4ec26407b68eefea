"""Items on a balance."""

from __future__ import annotations

from itertools import combinations

import pytest
from tests.bench.games.forgetting import call

from memagent.tools import Toolset
from memagent_bench.games import Game
from memagent_bench.games.comparisons import Heaviest, TopFive


async def order(game: Game, items: int) -> list[int]:
    """All items, heaviest first, from all comparisons."""
    wins = dict.fromkeys(range(1, items + 1), 0)
    for a, b in combinations(wins, 2):
        text = (await Toolset(game.tools).run(call("compare", first=a, second=b))).text
        wins[a if text == f"Item {a} is heavier than item {b}." else b] += 1
    assert sorted(wins.values()) == list(range(items))
    return sorted(wins, key=lambda item: -wins[item])


@pytest.mark.parametrize("seed", range(3))
async def test_the_heaviest_wins_all_comparisons(seed: int) -> None:
    game = Heaviest(seed=seed, difficulty=12)
    assert game.finish(str((await order(game, 13))[0]))


@pytest.mark.parametrize("seed", range(3))
async def test_the_five_heaviest_are_wanted_in_order(seed: int) -> None:
    def dealt() -> Game:
        return TopFive(seed=seed, difficulty=40)

    items = int(dealt().task.split()[2])
    first = (await order(dealt(), items))[:5]
    assert dealt().finish(",".join(map(str, first)))
    assert not dealt().finish(", ".join(map(str, first[::-1])))
    assert not dealt().finish(", ".join(map(str, first[:4])))


async def test_an_item_is_not_compared_with_itself() -> None:
    output = await Toolset(Heaviest(seed=0, difficulty=12).tools).run(
        call("compare", first=2, second=2)
    )
    assert not output.ok
    assert "both 2" in output.text
