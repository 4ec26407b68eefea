"""Tool games as samples: each sample names its game and can deal it."""

import hashlib
from collections.abc import Iterable
from typing import Any, cast

from memagent.errors import ConfigError, MemagentError
from memagent.named import load_function
from memagent.tools import Environment
from memagent_bench.games import make, names
from memagent_train.data.generated import TaskSource
from memagent_train.data.samples import TrainingSample
from memagent_train.data.settings import GameSettings

VERDICT = "verdict"
"""Stands in for a score and for references: an answer can only be judged by the game it was found in."""
REPLY = 256
"""Maximum reply tokens of a one-shot protocol, which games don't have."""
ALL = "all"
PARTS = ("task", "tools", "steps", "finish", "verdict")
"""Attributes of a game that rollouts use."""


class GameSample(TrainingSample):
    """A game to be played; `question` is its task."""

    seed: int
    """Seed of the deal."""

    def deal(self) -> Environment:
        """Deals the game from its start; every call deals the same. May block.

        Raises:
            ConfigError: the game can't be dealt.
        """
        return deal(self.task, seed=self.seed, difficulty=self.length)


class GameTask:
    """The samples of one game at one difficulty.

    Args:
        game: its name, or `module:Class`.
        difficulty: approximate tool calls of a perfect player.
        seed: seed of all deals.
    """

    scorer = VERDICT

    def __init__(self, game: str, difficulty: int, *, seed: int) -> None:
        self.name, self._difficulty, self._seed = game, difficulty, seed

    @property
    def facts(self) -> dict[str, str | int | bool]:
        """See `memagent.tasks.Task`."""
        return {"difficulty": self._difficulty, "seed": self._seed}

    def sample(self, index: int) -> GameSample:
        """Returns the game at `index`."""
        digest = hashlib.sha256(f"{self._seed}:{self.name}:{self._difficulty}:{index}".encode())
        seed = int.from_bytes(digest.digest()[:6])
        task = deal(self.name, seed=seed, difficulty=self._difficulty).task
        return GameSample(
            task=self.name,
            index=index,
            length=self._difficulty,
            tokens=self._difficulty,
            context="",
            question=task,
            outputs=(VERDICT,),
            generate=REPLY,
            scorer=VERDICT,
            seed=seed,
        )


def deal(game: str, *, seed: int, difficulty: int) -> Environment:
    """Deals a game.

    Args:
        game: a name in `memagent_bench.games`, or `module:Class`.
        seed: any integer.
        difficulty: approximate tool calls of a perfect player.

    Raises:
        ConfigError: there is no such game, or it can't be dealt with these arguments.
    """
    if ":" not in game:
        return make(game, seed=seed, difficulty=difficulty)
    try:
        dealt = cast("Environment", load_function(game, "game")(seed=seed, difficulty=difficulty))
    except MemagentError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise ConfigError(
            f"the game {game!r} cannot be dealt with seed={seed!r} and difficulty={difficulty!r}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if missing := [what for what in PARTS if not hasattr(dealt, what)]:
        raise ConfigError(
            f"the game {game!r} lacks {', '.join(missing)}: see memagent.tools.Environment"
        )
    return dealt


def list_games(games: Iterable[str]) -> list[str]:
    """Lists the games that the settings name, with `all` expanded."""
    return [name for game in games for name in (names() if game == ALL else (game,))]


def open_games(settings: GameSettings, seed: int) -> TaskSource:
    """Opens a source of games. Raises the errors of `deal`."""

    def make_task(name: str, difficulty: int | None) -> Any:
        assert difficulty is not None
        return GameTask(name, difficulty, seed=seed)

    return TaskSource(
        settings.name or settings.kind,
        make_task,
        list_games(settings.games),
        lengths=settings.difficulties,
        count=settings.count,
        seed=seed,
    )
