"""Tool games: tools with a hidden state, a verdict by code, and an expert for each."""

from memagent_bench.games.base import Game
from memagent_bench.games.experts import Expert
from memagent_bench.games.games import expert, make, names
from memagent_bench.games.play import Played, play

__all__ = ["Expert", "Game", "Played", "expert", "make", "names", "play"]
