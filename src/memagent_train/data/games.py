"""Tool games as samples: each names its game, and deals it."""

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
"""In the place of a score and of references: an answer can only be judged by the game in which it was found."""
REPLY = 256
"""Maximum tokens of a reply in a one-shot protocol, which games don't have."""
ALL = "all"
PARTS = ("task", "tools", "steps", "finish", "verdict")
"""What rollouts use of a game."""


class GameSample(TrainingSample):
    """A game to be played; `question` is its task."""

    seed: int
    """Of the deal."""

    def deal(self) -> Environment:
        """The game at its start, always the same. May block.

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
        """The game at `index`."""
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
        ConfigError: there is no such game, or it can't be dealt so.
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
    """The games that settings name, each of `all` by its own name."""
    return [name for game in games for name in (names() if game == ALL else (game,))]


def open_games(settings: GameSettings, seed: int) -> TaskSource:
    """A source of games. Raises what `deal` raises."""

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
