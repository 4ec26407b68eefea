"""A fact at a random place of a long text, for a policy to find."""

from __future__ import annotations

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
"""The wording that `nano` was trained on, numbers of the kind that it knows, and names that it never saw."""

BOOK = "samples/war_and_peace.txt.gz"
BOOK_TOKENS = 849_497
"""Of GPT-2's encoding, counted."""
MARGIN = 0.1
"""Of the text, before and behind which no needle stands."""
PARAGRAPH = "\n\n"


class Length(StrEnum):
    """How long the text is, in tokens of GPT-2's encoding."""

    K16 = "16k"
    K64 = "64k"
    K256 = "256k"
    M1 = "1M"

    @property
    def tokens(self) -> int:
        """As a number."""
        return int(self[:-1]) * {"k": 1024, "M": 1024**2}[self[-1]]


@dataclass(frozen=True)
class Needle:
    """A text with one fact in it that the rest knows nothing of, from the character `place` on."""

    text: str
    fact: str
    question: str
    count: int
    """What the answer has to say."""
    place: int

    def is_right(self, answer: str | None) -> bool:
        """Whether an answer says the number, and no other one."""
        return answer is not None and set(re.findall(r"\d+", answer)) == {str(self.count)}


def book() -> str:
    """All of the shipped book."""
    return gzip.decompress(resources.files("memagent").joinpath(BOOK).read_bytes()).decode()


def hide(length: Length, seed: int) -> Needle:
    """Hides a fact in about `length` tokens of the book. The same seed hides it in the same place.

    The text begins somewhere in the book and continues, where that is used up, from another place of it.
    """
    rng = Random(f"{length} {seed}")
    whole = book()
    chars = round(length.tokens * len(whole) / BOOK_TOKENS)
    text = ""
    while len(text) < chars:
        text += whole[_paragraph(whole, rng.randrange(len(whole) // 2)) :]
    text = text[:chars]
    who, count = rng.choice(NAMES), rng.choice(COUNTS)
    fact = FACT.format(who=who, count=count)
    place = _paragraph(text, int(rng.uniform(MARGIN, 1 - MARGIN) * len(text)))
    text = f"{text[:place]}{fact}{PARAGRAPH}{text[place:]}"
    return Needle(text, fact, QUESTION.format(who=who), count, place)


def _paragraph(text: str, place: int) -> int:
    """Where the first paragraph behind a place begins."""
    found = text.find(PARAGRAPH, place)
    return place if found < 0 else found + len(PARAGRAPH)
