"""Names, numbers and wordings of the notes, each with a part held out from training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from memagent.errors import ConfigError
from memagent_bench.tracking.names import CONSONANTS, VOWELS

NAMES_IN = 5
"""One in this many names is held out."""
NUMBERS_IN = 7
"""One in this many numbers is held out."""
FEWEST = 2
"""Minimum syllables and digits: with one, too few names and numbers are held out for a document."""


@dataclass(frozen=True)
class Vocabulary:
    """Names and numbers of notes.

    Raises:
        ConfigError: names or numbers are too short.
    """

    syllables: int = 2
    """Syllables of a name. There are 70 ** syllables names, all of one length, so that none is part of another."""
    digits: int = 2
    """Digits of a number."""
    held_out: bool = False
    """Whether names and numbers are the ones held out from training."""

    def __post_init__(self) -> None:
        for name, value in (("syllables", self.syllables), ("digits", self.digits)):
            if value < FEWEST:
                raise ConfigError(
                    f"{name}={value!r} leaves too few to draw; give at least {FEWEST}"
                )

    def names(self, count: int, rng: Random) -> list[str]:
        """Draws distinct names (far fewer than exist) in random order, such as `Tolu`."""
        names: dict[str, None] = {}
        while len(names) < count:
            pairs = (rng.choice(CONSONANTS) + rng.choice(VOWELS) for _ in range(self.syllables))
            name = "".join(pairs).capitalize()
            if _is_held_out(name, NAMES_IN) == self.held_out:
                names[name] = None
        return list(names)

    def number(self, rng: Random) -> str:
        """Draws a number without a leading zero."""
        while True:
            number = str(rng.randrange(10 ** (self.digits - 1), 10**self.digits))
            if _is_held_out(number, NUMBERS_IN) == self.held_out:
                return number

    def sign(self, rng: Random) -> str:
        """Draws hexadecimal digits, as in a UUID, twice as many as a number has digits. No training shows any."""
        return "".join(rng.choices("0123456789abcdef", k=2 * self.digits))


def _is_held_out(text: str, part: int) -> bool:
    """Returns whether a text is held out: depends on its letters alone, the same everywhere."""
    value = 0
    for letter in text:
        value = (31 * value + ord(letter)) % 99991
    return value % part == 0


@dataclass(frozen=True)
class Wording:
    """Sentences of notes and questions."""

    label: str
    """Name in records."""
    notes: Mapping[str, tuple[str, ...]]
    """Kind of note -> sentences with `{who}` and `{what}`."""
    questions: Mapping[str, tuple[str, ...]]
    """Kind of question -> sentences with `{who}`, and `{other}` if two people are asked about."""


COINS, MASTER, MORE, SIGN = "coins", "master", "more", "sign"
"""Kinds of notes: a new number of coins, whom somebody works for, one more coin, a sign."""
PAIR = "pair"
"""Kind of questions about the coins of two people. The other kinds of questions are `COINS`, `SIGN`, and `MASTER`
for the coins of somebody's master."""
TRAINED = Wording(
    label="as in training",
    notes={
        COINS: (
            "{who} has {what} coins.",
            "{who} now holds {what} coins.",
            "The purse of {who} holds {what} coins.",
            "There are {what} coins in the purse of {who}.",
        ),
        MASTER: (
            "{who} works for {what}.",
            "The master of {who} is {what}.",
            "{who} is the servant of {what}.",
        ),
        MORE: ("One more coin goes into the purse of {who}.",),
        SIGN: ("The purse of {who} bears the sign {what}.",),
    },
    questions={
        COINS: (
            "How many coins has {who}?",
            "How many coins does {who} hold?",
            "What is in the purse of {who}?",
        ),
        MASTER: (
            "How many coins has the master of {who}?",
            "What is in the purse of the one for whom {who} works?",
        ),
        SIGN: ("Which sign does the purse of {who} bear?",),
        PAIR: ("How many coins have {who} and {other}?",),
    },
)
"""Sentences used in training, except those of `MORE`, `SIGN` and `PAIR`, whose families are never trained on."""
HELD_OUT = Wording(
    label="held out",
    notes={
        COINS: ("By now {what} coins belong to {who}.", "{who} counted {what} coins in all."),
        MASTER: ("{what} is the one whom {who} serves.", "{who} obeys {what}."),
        MORE: ("Somebody gives {who} another coin.",),
        SIGN: ("On the purse of {who} stands {what}.",),
    },
    questions={
        COINS: ("How many coins belong to {who}?",),
        MASTER: ("How many coins belong to the one whom {who} serves?",),
        SIGN: ("What stands on the purse of {who}?",),
        PAIR: ("How many coins belong to {who}, and how many to {other}?",),
    },
)
"""Sentences held out from training."""
