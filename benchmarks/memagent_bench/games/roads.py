"""Towns and roads; each town reveals only its own roads."""

from __future__ import annotations

import random
import re
from typing import Self

from pydantic import Field

from memagent.errors import ToolError
from memagent.texts import quote
from memagent_bench.games.base import Deal, Game, query
from memagent_bench.games.experts import Notes, word
from memagent_bench.games.transcript import Call, call
from memagent_bench.games.words import make_names

ROADS = re.compile(r"From (\w+): ((?:\w+ in \d+ hours(?:, )?)+)\.")
ROAD = re.compile(r"(\w+) in (\d+) hours")
WIDTH = 4


class Roads(Game):
    """Find the shortest way through towns in stages of four: n towns."""

    name = "roads"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        stages = max(2, round((difficulty - 1) / WIDTH))
        start, goal, *others = make_names(rng, 2 + stages * WIDTH)
        rows = [others[i : i + WIDTH] for i in range(0, len(others), WIDTH)]
        self._roads = {start: [(town, rng.randint(1, 20)) for town in rows[0]]}
        best = dict(self._roads[start])
        for stage, ahead in zip(rows, [*rows[1:], [goal]], strict=True):
            for place, town in enumerate(stage):
                # One road straight ahead, so that each town can be reached, and a random one.
                ends = {ahead[place % len(ahead)]: 0, rng.choice(ahead): 0}
                self._roads[town] = [(end, rng.randint(1, 20)) for end in ends]
            best = find_shortest(best, {town: self._roads[town] for town in stage})
        self._roads[goal] = []
        task = f"Roads lead from town to town. How many hours does the shortest way from {start} to {goal} take?"
        hint = "Each road leads one stage nearer to the end, so all ways have the same number of roads."
        return Deal(f"{task} {hint}", str(best[goal]))

    @query
    def roads(self, town: str) -> str:
        """Tells which towns the roads from a town lead to, and how long they take."""
        if town not in self._roads:
            raise ToolError(f"there is no town {quote(town)}")
        ways = ", ".join(f"{end} in {hours} hours" for end, hours in self._roads[town])
        return f"From {town}: {ways or 'no roads'}."


def find_shortest(best: dict[str, int], roads: dict[str, list[tuple[str, int]]]) -> dict[str, int]:
    """Returns the shortest times to the towns that roads lead to, given those to the towns they start from."""
    ahead: dict[str, int] = {}
    for town, ends in roads.items():
        for end, hours in ends:
            ahead[end] = min(ahead.get(end, best[town] + hours), best[town] + hours)
    return ahead


class RoadsNotes(Notes):
    """Shortest times to the towns of a stage that are still to be asked about, and to those of the next stage."""

    goal: str
    here: dict[str, int]
    ahead: dict[str, int] = Field(default_factory=dict)

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        start = word(r"shortest way from (\w+) to", task)
        return cls(goal=word(r"shortest way from \w+ to (\w+) take", task), here={start: 0})

    def next(self) -> Call | str:
        """Asks about the first town that is left."""
        if self.goal in self.here:
            return str(self.here[self.goal])
        return call("roads", town=next(iter(self.here)))

    def fold(self, result: str) -> Self | None:
        """Shortens the times of the next stage; moves there when all towns of this one are done."""
        match, town = ROADS.fullmatch(result), next(iter(self.here))
        if match is None or match[1] != town:
            return None
        ends = [(end, int(hours)) for end, hours in ROAD.findall(match[2])]
        near = find_shortest(self.here, {town: ends})
        merged = self.ahead | {end: min(t, self.ahead.get(end, t)) for end, t in near.items()}
        times = {name: time for name, time in self.here.items() if name != town}
        return self.but(here=times, ahead=merged) if times else self.but(here=merged, ahead={})
