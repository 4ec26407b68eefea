"""Tool games: tools with a hidden state of their own, a verdict by code, and an expert for each."""

from memagent.environments.base import Environment
from memagent.environments.experts import Expert
from memagent.environments.games import expert, make, names
from memagent.environments.play import Played, play

__all__ = ["Environment", "Expert", "Played", "expert", "make", "names", "play"]
