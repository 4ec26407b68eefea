"""Questions about a world of people with purses and masters, and the notes that answer them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from memagent_bench.notes.vocabulary import COINS, MASTER, MORE, PAIR, SIGN, Vocabulary, Wording
from memagent_bench.tracking.puzzle import Fact

MASTERS = 0.25
"""Share of masters among the distractor notes."""
ASIDE = 0.15
"""Share of distractor notes that are about the person asked for, and still useless."""
Place = tuple[float, Fact]
"""Share of the filler before the note, in [0, 1); and the note."""


@dataclass(frozen=True)
class World:
    """The people, and how notes and questions about them are worded."""

    words: Vocabulary
    wording: Wording
    asked: tuple[str, str]
    """The person whom a question names, and another whom it may need: no distractor changes an answer about them."""
    others: tuple[str, ...]
    """At least two people who are mentioned but not asked about."""

    def say(self, kind: str, who: str, what: str, rng: Random) -> str:
        """Words a note."""
        return rng.choice(self.wording.notes[kind]).format(who=who, what=what)

    def ask(self, kind: str, rng: Random) -> str:
        """Words a question."""
        who, other = self.asked
        return rng.choice(self.wording.questions[kind]).format(who=who, other=other)

    def passing(self, kind: str, rng: Random) -> Fact:
        """Draws a note that no question of this kind needs: about others, or about something else.

        If masters are asked for, it may say what the servant has, else whom the person asked for works for.
        """
        if rng.random() < MASTERS:
            who, master = rng.sample(self.others, 2)
            if kind != MASTER and rng.random() < ASIDE:
                who = self.asked[0]
            return Fact(self.say(MASTER, who, master, rng))
        who = self.asked[0] if kind == MASTER and rng.random() < ASIDE else rng.choice(self.others)
        return Fact(self.say(COINS, who, self.words.number(rng), rng))


Make = Callable[[World, Random], tuple[list[Place], tuple[str, ...]]]
"""Makes the notes that matter, in document order, and the references of the answer."""


def once(world: World, rng: Random) -> tuple[list[Place], tuple[str, ...]]:
    """Makes a number that is said once. (Retrieval: a search finds it.)"""
    numbers = _draw_different(world, 1, rng)
    return _spread(_overwrite(world, world.asked[0], numbers, rng), rng), (numbers[-1],)


def last(world: World, rng: Random) -> tuple[list[Place], tuple[str, ...]]:
    """Makes a number that is said two to four times, with different values; the last one counts."""
    numbers = _draw_different(world, rng.randint(2, 4), rng)
    return _spread(_overwrite(world, world.asked[0], numbers, rng), rng), (numbers[-1],)


def hop(world: World, rng: Random) -> tuple[list[Place], tuple[str, ...]]:
    """Makes somebody's master, then the master's number, which may change: the last one counts."""
    who, master = world.asked
    numbers = _draw_different(world, rng.randint(1, 2), rng)
    facts = [Fact(world.say(MASTER, who, master, rng), (master,), (0,))]
    facts += _overwrite(world, master, numbers, rng)
    return _spread(facts, rng), (numbers[-1],)


def count(world: World, rng: Random) -> tuple[list[Place], tuple[str, ...]]:
    """Makes a number, and one to four more coins, one at a time.

    All of these notes are evidence. A memory holds one if it has the number after it, or any later number, which
    includes it.
    """
    start, more = int(world.words.number(rng)), rng.randint(1, 4)
    texts = [world.say(COINS, world.asked[0], str(start), rng)]
    texts += [world.say(MORE, world.asked[0], "", rng) for _ in range(more)]
    numbers = tuple(str(start + step) for step in range(more + 1))
    facts = [Fact(text, numbers[step:], (0,)) for step, text in enumerate(texts)]
    return _spread(facts, rng), (numbers[-1],)


def pair(world: World, rng: Random) -> tuple[list[Place], tuple[str, ...]]:
    """Makes two numbers, of two people, each said once."""
    numbers = _draw_different(world, 2, rng)
    people = zip(world.asked, numbers, strict=True)
    facts = [
        Fact(world.say(COINS, who, number, rng), (number,), (place,))
        for place, (who, number) in enumerate(people)
    ]
    rng.shuffle(facts)
    return _spread(facts, rng), tuple(numbers)


def sign(world: World, rng: Random) -> tuple[list[Place], tuple[str, ...]]:
    """Makes a value of another kind, said once: hexadecimal digits."""
    value = world.words.sign(rng)
    fact = Fact(world.say(SIGN, world.asked[0], value, rng), (value,), (0,))
    return _spread([fact], rng), (value,)


@dataclass(frozen=True)
class Family:
    """One kind of question."""

    make: Make
    asks: str
    """Kind of question in `Wording.questions`."""
    scorer: str
    """One of `memagent.tasks.SCORERS`."""
    label: str
    """Name in records."""


FAMILIES = {
    "once": Family(once, COINS, "number_match", "said once"),
    "last": Family(last, COINS, "number_match", "last write wins"),
    "hop": Family(hop, MASTER, "number_match", "two hops"),
    "count": Family(count, COINS, "number_match", "counting"),
    "pair": Family(pair, PAIR, "string_match_all", "two at a time"),
    "sign": Family(sign, SIGN, "string_match_all", "hexadecimal values"),
}
"""Families by name."""
TAUGHT = ("once", "last", "hop")
"""Families used in training; the others are never seen there."""


def _draw_different(world: World, many: int, rng: Random) -> list[str]:
    """Draws distinct numbers."""
    numbers: dict[str, None] = {}
    while len(numbers) < many:
        numbers[world.words.number(rng)] = None
    return list(numbers)


def _overwrite(world: World, who: str, numbers: Sequence[str], rng: Random) -> list[Fact]:
    """Words somebody's successive numbers; only the last one is evidence."""
    texts = [world.say(COINS, who, number, rng) for number in numbers]
    return [*map(Fact, texts[:-1]), Fact(texts[-1], (numbers[-1],), (0,))]


def _spread(facts: Sequence[Fact], rng: Random) -> list[Place]:
    """Places the facts, in order, at uniformly drawn places."""
    return list(zip(sorted(rng.random() for _ in facts), facts, strict=True))
