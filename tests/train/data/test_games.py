from typing import Any

import pytest

from memagent.errors import ConfigError
from memagent.tokens import ByteBound
from memagent.tools import tool
from memagent_bench.games import names
from memagent_train.data.games import GameSample, deal
from memagent_train.data.open import open_data
from memagent_train.data.settings import DataSettings
from memagent_train.sessions import Playable


class Guess:
    """Guess the seed."""

    def __init__(self, *, seed: int, difficulty: int) -> None:
        if difficulty == 13:
            raise ValueError("unlucky")
        self.task, self.steps = f"Guess {seed} in {difficulty}", 0
        self.seed, self.right = seed, False
        self.tools = (tool(self.look),)
        self.over = False

    def look(self) -> str:
        """Looks."""
        self.steps += 1
        return str(self.seed)

    def finish(self, answer: str) -> bool:
        self.over, self.right = True, answer == str(self.seed)
        return self.right

    def verdict(self) -> float:
        return float(self.right)


class Partial:
    """Lacks something."""

    task, tools = "", ()

    def __init__(self, *, seed: int, difficulty: int) -> None:
        pass

    def finish(self, answer: str) -> bool:
        return True


def opened(**settings: Any) -> Any:
    source = {"kind": "game", "count": 20, **settings}
    data = DataSettings.model_validate({"source": [source], "seed": settings.pop("seed", 0)})
    return open_data(data, counter=ByteBound())


def test_samples_are_games_dealt_anew_each_time() -> None:
    data = opened(games=["deck", "roads"], difficulties=[10, 20])
    samples = [data.sample(index, epoch) for epoch in (0, 1) for index in range(20)]
    assert {one.task for one in samples} == {"deck", "roads"}
    assert {one.length for one in samples} == {10, 20}
    assert len({one.seed for one in samples}) == 40
    for one in samples[:4]:
        assert isinstance(one, GameSample)
        assert isinstance(one, Playable)
        assert one.deal().task == one.deal().task == one.question
    assert opened(games=["deck", "roads"], difficulties=[10, 20]).sample(3) == data.sample(3)


def test_evaluations_take_other_difficulties() -> None:
    train, held = opened(games=["deck"], difficulties=[10]).split(5)
    assert {held.at(40).sample(n).length for n in range(5)} == {40}
    assert not {train.sample(n).seed for n in range(15)} & {held.sample(n).seed for n in range(5)}


def test_all_games_and_a_game_of_ones_own() -> None:
    data = opened(games=["all"], difficulties=[10], count=2 * len(names()))
    assert {data.sample(n).task for n in range(len(data))} == set(names())
    own = opened(games=["tests.train.data.test_games:Guess"], difficulties=[12])
    game = own.sample(0).deal()
    assert isinstance(game, Guess)
    assert game.task == own.sample(0).question


@pytest.mark.parametrize(
    ("game", "difficulty", "words"),
    [
        ("chess", 20, "there is no game 'chess'"),
        ("deck", 3, "difficulty must be an integer from 10"),
        ("tests.train.data.test_games:Guess", 13, "cannot be dealt .* ValueError: unlucky"),
        ("tests.train.data.test_games:None", 13, "has no function"),
        ("tests.train.data.test_games:Partial", 13, "lacks steps, verdict: see"),
    ],
)
def test_a_game_that_cannot_be_dealt_is_named(game: str, difficulty: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        deal(game, seed=1, difficulty=difficulty)
    with pytest.raises(ConfigError, match=words):
        opened(games=[game], difficulties=[difficulty])
