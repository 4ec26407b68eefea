"""A fact at a random place of a long text, for a policy to find."""

import gzip
import re
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from random import Random

FACT = "The purse of {who} holds {count} coins."
QUESTION = "How many coins has {who}?"
NAMES = ("Nudimi", "Tusozu", "Suzori", "Dedilo", "Dogilo", "Zufeva", "Bugife", "Fodite")
COUNTS = range(1000, 10_000)
"""The wording and the kind of numbers that `nano` was trained on, but names that it never saw."""

BOOK = "samples/war_and_peace.txt.gz"
BOOK_TOKENS = 849_497
"""Tokens of the book in GPT-2's encoding, counted."""
MARGIN = 0.1
"""Share of the text at each end in which the needle is not placed."""
PARAGRAPH = "\n\n"


class Length(StrEnum):
    """The text's length, in GPT-2 tokens."""

    K16 = "16k"
    K64 = "64k"
    K256 = "256k"
    M1 = "1M"

    @property
    def tokens(self) -> int:
        """The length as a number."""
        return int(self[:-1]) * {"k": 1024, "M": 1024**2}[self[-1]]


@dataclass(frozen=True)
class Needle:
    """A text with one unrelated fact hidden in it, starting at character `place`."""

    text: str
    fact: str
    question: str
    count: int
    """The number that the answer must contain."""
    place: int

    def is_right(self, answer: str | None) -> bool:
        """Returns whether an answer contains this number and no other."""
        return answer is not None and set(re.findall(r"\d+", answer)) == {str(self.count)}


def book() -> str:
    """Loads the whole shipped book."""
    return gzip.decompress(resources.files("memagent").joinpath(BOOK).read_bytes()).decode()


def hide(length: Length, seed: int) -> Needle:
    """Hides a fact in about `length` tokens of the book. The same seed hides it in the same place.

    The text begins at a random place in the book and, at the book's end, continues from another one.
    """
    rng = Random(f"{length} {seed}")
    source = book()
    chars = round(length.tokens * len(source) / BOOK_TOKENS)
    text = ""
    while len(text) < chars:
        text += source[_paragraph(source, rng.randrange(len(source) // 2)) :]
    text = text[:chars]
    name, count = rng.choice(NAMES), rng.choice(COUNTS)
    fact = FACT.format(who=name, count=count)
    place = _paragraph(text, int(rng.uniform(MARGIN, 1 - MARGIN) * len(text)))
    text = f"{text[:place]}{fact}{PARAGRAPH}{text[place:]}"
    return Needle(text, fact, QUESTION.format(who=name), count, place)


def _paragraph(text: str, place: int) -> int:
    """Finds where the first paragraph after a place begins."""
    position = text.find(PARAGRAPH, place)
    return place if position < 0 else position + len(PARAGRAPH)
