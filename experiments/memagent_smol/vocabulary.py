"""Roles, places, values and wordings of facts, each with a part held out from training."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from uuid import UUID

HELD_IN = 4
"""One in this many places, nouns and numbers is held out."""

ROLES = (
    ("doctor", "physician", "medical man"),
    ("lawyer", "attorney", "solicitor"),
    ("teacher", "schoolmaster", "instructor"),
    ("cook", "chef"),
    ("sailor", "seaman", "mariner"),
    ("priest", "clergyman", "parson"),
    ("writer", "author", "novelist"),
    ("thief", "robber", "burglar"),
    ("innkeeper", "landlord", "publican"),
    ("judge", "magistrate"),
    ("clerk", "secretary", "scribe"),
    ("hunter", "huntsman", "trapper"),
    ("watchman", "guard", "sentry"),
    ("blacksmith", "smith", "farrier"),
    ("carpenter", "joiner", "woodworker"),
    ("chemist", "pharmacist", "druggist"),
    ("barber", "hairdresser"),
    ("beggar", "vagrant", "tramp"),
    ("cobbler", "shoemaker"),
    ("wizard", "magician", "sorcerer"),
    ("soldier", "warrior", "trooper"),
    ("merchant", "trader", "dealer"),
    ("king", "monarch", "sovereign"),
    ("coachman", "driver", "cabman"),
)
"""People, each with synonyms. A document and its question never use the same one."""
HELD_OUT_ROLES = (
    ("policeman", "constable", "officer of the law"),
    ("fisherman", "angler"),
    ("painter", "artist"),
    ("singer", "vocalist"),
    ("banker", "financier", "moneylender"),
    ("woodcutter", "lumberjack", "logger"),
    ("jester", "clown", "fool"),
    ("prisoner", "captive", "convict"),
    ("postman", "mail carrier", "letter carrier"),
    ("tailor", "clothes maker", "maker of suits"),
    ("undertaker", "mortician", "funeral director"),
    ("spy", "secret agent", "informer"),
)
SAID_OF = (
    "the {role} of {place}",
    "the {role} from {place}",
    "the {role} in {place}",
    "{place}'s {role}",
)
HELD_OUT_SAID_OF = ("the {role} at {place}", "the {place} {role}")

FIRST = (
    "Ash", "Bar", "Cal", "Dun", "Elm", "Fal", "Gar", "Hol", "Ing", "Kel", "Lang", "Mar", "Nor", "Oak", "Pem", "Ros",
    "Sal", "Thorn", "Ul", "Wal", "Win", "Brad", "Chal", "Wether",
)  # fmt: skip
LAST = (
    "ford",
    "ton",
    "by",
    "wick",
    "ham",
    "stead",
    "mouth",
    "ley",
    "worth",
    "combe",
    "field",
    "bury",
)
SURNAMES = (
    "Abbott", "Barker", "Carver", "Dalton", "Ellis", "Foster", "Gibbs", "Harper", "Ingram", "Jarvis", "Keating",
    "Lawson", "Mercer", "Nolan", "Osborne", "Parrish", "Quinn", "Ramsey", "Sawyer", "Talbot", "Underhill", "Vance",
    "Weaver", "Yates", "Bishop", "Conway", "Drake", "Everett", "Flynn", "Goodwin", "Hobbs", "Irwin",
)  # fmt: skip
HELD_OUT_SURNAMES = (
    "Ashby", "Benson", "Chandler", "Dyer", "Emerson", "Fletcher", "Gardner", "Hale", "Jennings", "Knight", "Lambert",
    "Morris", "Norris", "Palmer", "Rhodes", "Sutton", "Turner", "Vaughn", "Walton", "York",
)  # fmt: skip
THINGS = (
    "acorn", "anchor", "barrel", "basket", "beacon", "bonnet", "bridge", "button", "candle", "carpet", "castle",
    "cherry", "clover", "comet", "copper", "cradle", "crystal", "dagger", "daisy", "dragon", "eagle", "ember",
    "falcon", "feather", "fiddle", "garnet", "ginger", "goblet", "hammer", "harbor", "harvest", "hazel", "helmet",
    "ivory", "jasmine", "kettle", "ladder", "lantern", "lemon", "lily", "magnet", "maple", "marble", "meadow", "mirror",
    "needle", "nettle", "ocean", "olive", "orchard", "otter", "parcel", "pebble", "pepper", "pigeon", "pillow",
    "planet", "pocket", "quarry", "rabbit", "raven", "ribbon", "saddle", "salmon", "satchel", "shadow", "silver",
    "spider", "sponge", "stable", "teapot", "temple", "thistle", "timber", "tunnel", "turnip", "velvet", "violet",
    "walnut", "whistle", "willow", "window", "winter", "zebra",
)  # fmt: skip
WAYS = ("Lane", "Street", "Road", "Row", "Hill", "Square", "Court", "Gate")


@dataclass(frozen=True)
class Words:
    """Words of facts: those that training shows, or the held-out ones."""

    held_out: bool = False

    def place(self, rng: Random) -> str:
        """Draws a place, such as `Ashford`: 288 of them."""
        return self._draw(lambda: rng.choice(FIRST) + rng.choice(LAST))

    def surname(self, rng: Random) -> str:
        """Draws a surname, such as `Abbott`."""
        if self.held_out:
            return rng.choice(HELD_OUT_SURNAMES)
        return self._draw(lambda: rng.choice(SURNAMES))

    def thing(self, rng: Random) -> str:
        """Draws a noun, such as `acorn`."""
        return self._draw(lambda: rng.choice(THINGS))

    def number(self, rng: Random) -> str:
        """Draws a number of four to six digits."""
        digits = rng.randint(4, 6)
        return self._draw(lambda: str(rng.randrange(10 ** (digits - 1), 10**digits)))

    def uuid(self, rng: Random) -> str:
        """Draws a UUID, like RULER's keys and values."""
        return str(UUID(int=rng.getrandbits(128), version=4))

    def street(self, rng: Random) -> str:
        """Draws a street, such as `Acorn Lane`."""
        return f"{self.thing(rng).capitalize()} {rng.choice(WAYS)}"

    def pair(self, rng: Random) -> str:
        """Draws a pair of nouns, such as `acorn-velvet`."""
        return f"{self.thing(rng)}-{self.thing(rng)}"

    @property
    def roles(self) -> tuple[tuple[str, ...], ...]:
        """Roles, each with its synonyms."""
        return HELD_OUT_ROLES if self.held_out else ROLES

    @property
    def said_of(self) -> tuple[str, ...]:
        """Templates that join role and place."""
        return HELD_OUT_SAID_OF if self.held_out else SAID_OF

    def _draw(self, draw: Callable[[], str]) -> str:
        while True:
            word = draw()
            if (zlib.crc32(word.encode()) % HELD_IN == 0) == self.held_out:
                return word


@dataclass(frozen=True)
class Wording:
    """Statements and questions about one attribute; `{who}` and `{what}` are filled in."""

    said: tuple[str, ...]
    asked: tuple[str, ...]


@dataclass(frozen=True)
class Attribute:
    """An attribute of people that changes."""

    value: Callable[[Words, Random], str]
    trained: Wording
    held_out: Wording

    def wording(self, words: Words) -> Wording:
        """Returns the wording for these words."""
        return self.held_out if words.held_out else self.trained


ATTRIBUTES: Mapping[str, Attribute] = {
    "home": Attribute(
        Words.street,
        Wording(
            (
                "{who} lives in {what}.",
                "{who} took a house in {what}.",
                "The home of {who} is in {what}.",
                "{who} has rooms in {what}.",
                "It was in {what} that {who} settled.",
            ),
            ("In which street does {who} live at the end?", "What is the last address of {who}?"),
        ),
        Wording(
            (
                "{who} resides in {what}.",
                "{who} moved to {what}.",
                "Those who want {who} find the door in {what}.",
            ),
            ("Where is {who} lodging when the text ends?",),
        ),
    ),
    "pay": Attribute(
        Words.number,
        Wording(
            (
                "{who} earns {what} crowns a year.",
                "The wages of {who} came to {what} crowns.",
                "{who} is paid {what} crowns.",
                "A salary of {what} crowns was given to {who}.",
                "They settled on {what} crowns for {who}.",
            ),
            ("How many crowns does {who} earn at the end?", "What is the last salary of {who}, in crowns?"),
        ),
        Wording(
            (
                "{who} receives {what} crowns every year.",
                "The income of {who} was fixed at {what} crowns.",
                "{what} crowns are the yearly due of {who}.",
            ),
            ("How much money does {who} make when the text ends?",),
        ),
    ),
    "watchword": Attribute(
        Words.pair,
        Wording(
            (
                "{who} chose the watchword {what}.",
                "The watchword of {who} is {what}.",
                "{who} answers to the watchword {what}.",
                "Whoever meets {who} has to whisper {what}.",
                "{what} is what {who} wants to hear at the door.",
            ),
            ("What is the last watchword of {who}?", "Which watchword does {who} use at the end?"),
        ),
        Wording(
            (
                "{who} opens only to the word {what}.",
                "One says {what} to be let in by {who}.",
                "{who} agreed with all on the sign {what}.",
            ),
            ("Which password holds for {who} when the text ends?",),
        ),
    ),
    "master": Attribute(
        Words.surname,
        Wording(
            (
                "{who} works for {what}.",
                "{who} is in the service of {what}.",
                "{what} employs {who}.",
                "The employer of {who} is {what}.",
                "{who} entered the house of {what}.",
            ),
            ("For whom does {who} work at the end?", "Who is the last employer of {who}?"),
        ),
        Wording(
            ("{who} serves {what}.", "{what} hired {who}.", "{who} takes orders from {what}."),
            ("Who is the boss of {who} when the text ends?",),
        ),
    ),
    "horse": Attribute(
        lambda words, rng: words.thing(rng).capitalize(),
        Wording(
            (
                "{who} rides a horse called {what}.",
                "The horse of {who} is named {what}.",
                "{who} bought the mare {what}.",
                "{what} is the horse of {who}.",
                "{who} saddled {what}.",
            ),
            ("What is the last horse of {who} called?", "Which horse does {who} ride at the end?"),
        ),
        Wording(
            (
                "{who} owns the stallion {what}.",
                "{who} went about on {what}, a grey mare.",
                "{who} feeds a pony, {what}.",
            ),
            ("What is the name of the animal that carries {who} when the text ends?",),
        ),
    ),
}  # fmt: skip
"""Attributes by name."""


@dataclass(frozen=True)
class NeedleWording(Wording):
    """Entries under a key; the questions ask for one, all of one key, or those of two keys (`{who}` and `{other}`)."""

    asked_all: tuple[str, ...]
    asked_two: tuple[str, ...]


NEEDLES = NeedleWording(
    (
        "The access code of {who} is {what}.",
        "{who} is filed under {what}.",
        "Remember that {what} belongs to {who}.",
        "Next to {who} somebody has written {what}.",
        "For {who}, the register says {what}.",
        "Let it be known that {what} stands for {who}.",
        "The entry for {who} reads {what}.",
        "{what} was the answer that they gave for {who}.",
    ),
    (
        "What is the entry for {who}?",
        "What is {who} filed under?",
        "Which code does the text give for {who}?",
        "What belongs to {who}?",
    ),
    ("List all entries for {who}.", "What are all the things that belong to {who}?"),
    ("What are the entries for {who} and {other}?", "What belongs to {who}, and what to {other}?"),
)
"""None of them is RULER's own wording, which stays held out."""
HELD_OUT_NEEDLES = NeedleWording(
    (
        "In the ledger, {who} has the mark {what}.",
        "{what} is how they label {who}.",
        "Anyone who looks up {who} finds {what}.",
    ),
    ("Under which mark does one find {who}?",),
    ("Name every mark of {who}.",),
    ("Which marks do {who} and {other} have?",),
)
VALUES = Wording(("Let {who} be {what}.", "{who} equals {what}.", "Set {who} to {what}."), ())
"""Sets a variable to a number."""
COPIES = Wording(
    (
        "Let {who} be the same as {what}.",
        "{who} takes the value of {what}.",
        "Set {who} to what {what} is.",
    ),
    (
        "Which names have the value {what}? List all.",
        "List every name that stands for {what}.",
    ),
)
"""Sets a variable to another variable's value. RULER's wording is held out."""
