"""What is asked about a world of people with purses and masters, and which notes answer it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from memagent_bench.notes.vocabulary import COINS, MASTER, MORE, PAIR, SIGN, Vocabulary, Wording
from memagent_bench.tracking.puzzle import Fact

MASTERS = 0.25
"""Share of masters among the notes that nobody needs."""
ASIDE = 0.15
"""Share of those notes that are about the one who is asked for, and of no use all the same."""
Place = tuple[float, Fact]
"""Where a note stands, as a share of the filler before it, in [0, 1); and the note."""


@dataclass(frozen=True)
class World:
    """Who there is, and how one speaks of them."""

    words: Vocabulary
    wording: Wording
    asked: tuple[str, str]
    """The one whom a question names, and another whom it may need: no passing note changes an answer about them."""
    others: tuple[str, ...]
    """People who are only spoken of, at least two."""

    def say(self, kind: str, who: str, what: str, rng: Random) -> str:
        """A note."""
        return rng.choice(self.wording.notes[kind]).format(who=who, what=what)

    def ask(self, kind: str, rng: Random) -> str:
        """A question."""
        who, other = self.asked
        return rng.choice(self.wording.questions[kind]).format(who=who, other=other)

    def passing(self, kind: str, rng: Random) -> Fact:
        """A note that no question of this kind needs: about others, or about something that is not asked.

        Where masters are asked for, it may say what the servant has, else whom the one who is asked for works for.
        """
        if rng.random() < MASTERS:
            who, master = rng.sample(self.others, 2)
            if kind != MASTER and rng.random() < ASIDE:
                who = self.asked[0]
            return Fact(self.say(MASTER, who, master, rng))
        who = self.asked[0] if kind == MASTER and rng.random() < ASIDE else rng.choice(self.others)
        return Fact(self.say(COINS, who, self.words.number(rng), rng))


Make = Callable[[World, Random], tuple[list[Place], tuple[str, ...]]]
"""The notes that matter, in the order of the document, and the references of the answer."""


def once(world: World, rng: Random) -> tuple[list[Place], tuple[str, ...]]:
    """A number that is said once. (Retrieval: a search finds it.)"""
    numbers = _draw_different(world, 1, rng)
    return _spread(_overwrite(world, world.asked[0], numbers, rng), rng), (numbers[-1],)


def last(world: World, rng: Random) -> tuple[list[Place], tuple[str, ...]]:
    """A number that is said two to four times, another one each time; the last one counts."""
    numbers = _draw_different(world, rng.randint(2, 4), rng)
    return _spread(_overwrite(world, world.asked[0], numbers, rng), rng), (numbers[-1],)


def hop(world: World, rng: Random) -> tuple[list[Place], tuple[str, ...]]:
    """Somebody's master, and after that the master's number, which may change: the last one counts."""
    who, master = world.asked
    numbers = _draw_different(world, rng.randint(1, 2), rng)
    facts = [Fact(world.say(MASTER, who, master, rng), (master,), (0,))]
    facts += _overwrite(world, master, numbers, rng)
    return _spread(facts, rng), (numbers[-1],)


def count(world: World, rng: Random) -> tuple[list[Place], tuple[str, ...]]:
    """A number, and one to four coins more, one at a time.

    All of these notes are evidence. What a memory may hold of one is the number after it, or any later one, into
    which it went.
    """
    start, more = int(world.words.number(rng)), rng.randint(1, 4)
    texts = [world.say(COINS, world.asked[0], str(start), rng)]
    texts += [world.say(MORE, world.asked[0], "", rng) for _ in range(more)]
    numbers = tuple(str(start + step) for step in range(more + 1))
    facts = [Fact(text, numbers[step:], (0,)) for step, text in enumerate(texts)]
    return _spread(facts, rng), (numbers[-1],)


def pair(world: World, rng: Random) -> tuple[list[Place], tuple[str, ...]]:
    """Two numbers, of two people, each said once."""
    numbers = _draw_different(world, 2, rng)
    people = zip(world.asked, numbers, strict=True)
    facts = [
        Fact(world.say(COINS, who, number, rng), (number,), (place,))
        for place, (who, number) in enumerate(people)
    ]
    rng.shuffle(facts)
    return _spread(facts, rng), tuple(numbers)


def sign(world: World, rng: Random) -> tuple[list[Place], tuple[str, ...]]:
    """A value of another kind, said once: hexadecimal digits."""
    value = world.words.sign(rng)
    fact = Fact(world.say(SIGN, world.asked[0], value, rng), (value,), (0,))
    return _spread([fact], rng), (value,)


@dataclass(frozen=True)
class Family:
    """One kind of question."""

    make: Make
    asks: str
    """Kind of the question in `Wording.questions`."""
    scorer: str
    """In `memagent.tasks.SCORERS`."""
    label: str
    """What records call it."""


FAMILIES = {
    "once": Family(once, COINS, "number_match", "said once"),
    "last": Family(last, COINS, "number_match", "last write wins"),
    "hop": Family(hop, MASTER, "number_match", "two hops"),
    "count": Family(count, COINS, "number_match", "counting"),
    "pair": Family(pair, PAIR, "string_match_all", "two at a time"),
    "sign": Family(sign, SIGN, "string_match_all", "hexadecimal values"),
}
"""By name."""
TAUGHT = ("once", "last", "hop")
"""Families that trainings show; they see the others at no time."""


def _draw_different(world: World, many: int, rng: Random) -> list[str]:
    """Distinct numbers."""
    numbers: dict[str, None] = {}
    while len(numbers) < many:
        numbers[world.words.number(rng)] = None
    return list(numbers)


def _overwrite(world: World, who: str, numbers: Sequence[str], rng: Random) -> list[Fact]:
    """Somebody's numbers, one after another: evidence is the last one."""
    texts = [world.say(COINS, who, number, rng) for number in numbers]
    return [*map(Fact, texts[:-1]), Fact(texts[-1], (numbers[-1],), (0,))]


def _spread(facts: Sequence[Fact], rng: Random) -> list[Place]:
    """The facts in order at uniform places."""
    return list(zip(sorted(rng.random() for _ in facts), facts, strict=True))
