"""All games by name, and the expert of each."""

from __future__ import annotations

from typing import NamedTuple

from memagent.errors import ConfigError
from memagent_bench.games.base import Environment
from memagent_bench.games.codes import Safes, SafesNotes, Words, WordsNotes
from memagent_bench.games.comparisons import Heaviest, HeaviestNotes, TopFive, TopFiveNotes
from memagent_bench.games.experts import Expert, Notes
from memagent_bench.games.graphs import Boxes, BoxesNotes, Tree, TreeNotes
from memagent_bench.games.logs import Rooms, RoomsNotes, Schedule, ScheduleNotes
from memagent_bench.games.maze import Maze, MazeNotes
from memagent_bench.games.pages import Ledger, LedgerNotes, Votes, VotesNotes
from memagent_bench.games.roads import Roads, RoadsNotes
from memagent_bench.games.searches import Drift, DriftNotes, Locks, LocksNotes
from memagent_bench.games.streams import Deck, DeckNotes, Stock, StockNotes
from memagent_bench.games.tables import Drawdown, DrawdownNotes, Staircase, StaircaseNotes


class Game(NamedTuple):
    """A game and what its expert writes down."""

    environment: type[Environment]
    notes: type[Notes]


GAMES: dict[str, Game] = {
    game.environment.name: game
    for game in (
        Game(Boxes, BoxesNotes),
        Game(Deck, DeckNotes),
        Game(Drawdown, DrawdownNotes),
        Game(Drift, DriftNotes),
        Game(Heaviest, HeaviestNotes),
        Game(Ledger, LedgerNotes),
        Game(Locks, LocksNotes),
        Game(Maze, MazeNotes),
        Game(Roads, RoadsNotes),
        Game(Rooms, RoomsNotes),
        Game(Safes, SafesNotes),
        Game(Schedule, ScheduleNotes),
        Game(Staircase, StaircaseNotes),
        Game(Stock, StockNotes),
        Game(TopFive, TopFiveNotes),
        Game(Tree, TreeNotes),
        Game(Votes, VotesNotes),
        Game(Words, WordsNotes),
    )
}
"""By the name of the environment."""


def names() -> tuple[str, ...]:
    """The names of all games, by the alphabet."""
    return tuple(GAMES)


def make(name: str, *, seed: int, difficulty: int) -> Environment:
    """Deals a game: the same for the same arguments, in any process.

    Args:
        name: one of `names()`.
        seed: any integer.
        difficulty: tool calls that an expert who forgets nothing needs, about; 10 to 10,000.

    Raises:
        ConfigError: there is no such game, or a setting has a bad value.
    """
    return _game(name).environment(seed=seed, difficulty=difficulty)


def expert(name: str) -> Expert:
    """The expert of a game.

    Raises:
        ConfigError: there is no such game.
    """
    return Expert(_game(name).notes)


def _game(name: str) -> Game:
    if name not in GAMES:
        raise ConfigError(f"there is no game {name!r}; there are {', '.join(GAMES)}")
    return GAMES[name]
