"""All games by name, and the expert of each."""

from __future__ import annotations

from typing import NamedTuple

from memagent.errors import ConfigError
from memagent_bench.games.base import Game
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


class Entry(NamedTuple):
    """A game and its expert's notes."""

    environment: type[Game]
    notes: type[Notes]


GAMES: dict[str, Entry] = {
    game.environment.name: game
    for game in (
        Entry(Boxes, BoxesNotes),
        Entry(Deck, DeckNotes),
        Entry(Drawdown, DrawdownNotes),
        Entry(Drift, DriftNotes),
        Entry(Heaviest, HeaviestNotes),
        Entry(Ledger, LedgerNotes),
        Entry(Locks, LocksNotes),
        Entry(Maze, MazeNotes),
        Entry(Roads, RoadsNotes),
        Entry(Rooms, RoomsNotes),
        Entry(Safes, SafesNotes),
        Entry(Schedule, ScheduleNotes),
        Entry(Staircase, StaircaseNotes),
        Entry(Stock, StockNotes),
        Entry(TopFive, TopFiveNotes),
        Entry(Tree, TreeNotes),
        Entry(Votes, VotesNotes),
        Entry(Words, WordsNotes),
    )
}
"""Games by the name of the environment."""


def names() -> tuple[str, ...]:
    """Returns the names of all games, in alphabetical order."""
    return tuple(GAMES)


def make(name: str, *, seed: int, difficulty: int) -> Game:
    """Deals a game: the same for the same arguments, in any process.

    Args:
        name: one of `names()`.
        seed: any integer.
        difficulty: approximate tool calls that an expert with perfect memory needs; 10 to 10,000.

    Raises:
        ConfigError: there is no such game, or a setting has a bad value.
    """
    return _game(name).environment(seed=seed, difficulty=difficulty)


def expert(name: str) -> Expert:
    """Returns the expert of a game.

    Raises:
        ConfigError: there is no such game.
    """
    return Expert(_game(name).notes)


def _game(name: str) -> Entry:
    if name not in GAMES:
        raise ConfigError(f"there is no game {name!r}; the games are {', '.join(GAMES)}")
    return GAMES[name]
