"""`facts`: people who walk about, take things and put them down, between sentences of books. BABILong-style."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from memagent_bench.tracking.puzzle import Fact, Puzzle

PEOPLE = ("Imke", "Tadeo", "Oluchi", "Keiko")
THINGS = ("lantern", "compass", "spindle", "thimble", "barometer")
PLACES = (
    *("granary", "boathouse", "foundry", "orangery", "smithy", "chandlery", "apiary", "tannery"),
    *("brewery", "ropewalk", "belfry", "vestry", "dovecote", "icehouse", "saltworks", "creamery"),
)
"""Many, and rare in books: a place in a memory is likely to be the one asked for."""
EVENTS = 60
"""Events in a short document."""
QUIET = 0.7
"""All but one of the people do nothing more after some point in this last part: else the end alone would suffice."""
MOVE = ("{who} went to the {where}.", "{who} walked over to the {where}.")
TAKE = ("{who} picked up the {what}.", "{who} took the {what} along.")
DROP = ("{who} put down the {what}.", "{who} left the {what} there.")
ABOUT = (
    "Between the sentences of a text stand facts about {people}: they go from place to place, and carry things "
    "with them."
)
WHO = "Where is {who} at the end? Reply with the name of the place alone."
WHAT = "Where is the {what} at the end? Reply with the name of the place alone."


@dataclass
class World:
    """Where everything is, and which events say so."""

    rng: Random
    facts: list[Fact] = field(default_factory=list[Fact])
    at: dict[str, str] = field(default_factory=dict[str, str])
    """Person -> place."""
    moved: dict[str, int] = field(default_factory=dict[str, int])
    """Person -> event of the last move."""
    holder: dict[str, str] = field(default_factory=dict[str, str])
    """Thing -> person who carries it."""
    lies: dict[str, str] = field(default_factory=dict[str, str])
    """Thing -> place where it was put down."""
    because: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    """Thing -> events that say where it is, except the carrier's moves."""

    def step(self, who: str) -> None:
        """Makes one event: a move, or something is taken or put down if possible."""
        rng = self.rng
        place = self.at.get(who)
        carried = [what for what in THINGS if self.holder.get(what) == who]
        # A thing not yet mentioned may be anywhere: the first to take it finds it.
        near = [
            what
            for what in THINGS
            if what not in self.holder and self.lies.get(what, place) == place
        ]
        roll = rng.random()
        if place is not None and near and roll < 0.4:
            self._take(who, rng.choice(near))
        elif place is not None and carried and roll < 0.55:
            self._drop(who, rng.choice(carried), place)
        else:
            self._move(who, rng.choice([where for where in PLACES if where != place]))

    def where(self, what: str) -> tuple[str, tuple[int, ...]]:
        """Returns where a thing is, and the events that say so."""
        who = self.holder.get(what)
        if who is None:
            return self.lies[what], self.because[what]
        return self.at[who], (*self.because[what], self.moved[who])

    def _move(self, who: str, where: str) -> None:
        self.at[who] = where
        self.moved[who] = len(self.facts)
        self._tell(MOVE, (where,), who=who, where=where)

    def _take(self, who: str, what: str) -> None:
        self.holder[what] = who
        self.lies.pop(what, None)
        self.because[what] = (len(self.facts),)
        self._tell(TAKE, (who,), who=who, what=what)

    def _drop(self, who: str, what: str, place: str) -> None:
        del self.holder[what]
        self.lies[what] = place
        self.because[what] = (self.moved[who], len(self.facts))
        self._tell(DROP, (place,), who=who, what=what)

    def _tell(self, wordings: tuple[str, ...], notes: tuple[str, ...], **words: str) -> None:
        self.facts.append(Fact(self.rng.choice(wordings).format(**words), notes))


def facts(rng: Random, times: int) -> Puzzle:
    """Makes 4 people, 5 things, 16 places, 60 `times` events.

    Asks where a person or (equally often) a thing is at the end.

    Evidence: for a person, the last move; for a thing that lies somewhere, that it was put down and the move
    before; for a carried thing, who took it and that person's last move.
    """
    world = World(rng)
    events = EVENTS * times
    active = {who: events * (1 - QUIET * rng.random()) for who in PEOPLE}
    active[rng.choice(PEOPLE)] = events
    for event in range(events):
        world.step(rng.choice([who for who in PEOPLE if event < active[who]]))
    things = [what for what in THINGS if what in world.because]
    if things and rng.random() < 0.5:
        what = rng.choice(things)
        question = WHAT.format(what=what)
        answer, because = world.where(what)
    else:
        who = rng.choice([who for who in PEOPLE if who in world.at])
        question, answer, because = WHO.format(who=who), world.at[who], (world.moved[who],)
    notes = [
        Fact(fact.text, fact.notes, (0,)) if place in because else Fact(fact.text)
        for place, fact in enumerate(world.facts)
    ]
    about = ABOUT.format(people=", ".join(PEOPLE[:-1]) + " and " + PEOPLE[-1])
    return Puzzle(notes, about, question, (answer,))
