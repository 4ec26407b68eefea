"""`tally`: entries of several kinds over the whole text; the question asks how many there are of one kind."""

from __future__ import annotations

from random import Random

from memagent_bench.tracking.puzzle import Fact, Puzzle

ENTRIES = 96
"""Entries in a short document."""
KINDS = ("heron", "lapwing", "goshawk", "bittern", "kestrel", "plover")
FEWEST = 6
"""Minimum entries of each kind; the rest are drawn with random weights, so that counts differ."""
PLACES = (
    "the weir",
    "the quarry",
    "the lower mill",
    "the chalk pit",
    "the towpath",
    "the old ferry",
)
WORDINGS = (
    "Field log: a {kind} was seen near {place}.",
    "Field log: near {place}, a {kind}.",
)
ABOUT = (
    "Between the sentences of a text stand entries of a field log. Each reports one bird: a heron, a lapwing, a "
    "goshawk, a bittern, a kestrel or a plover."
)
QUESTION = (
    "How many entries of the field log report a {kind}? Reply with the number alone, in digits."
)


def tally(rng: Random, times: int) -> Puzzle:
    """Makes 96 `times` entries of 6 kinds; asks how many there are of one kind: an aggregation, in OOLONG's spirit.

    The evidence is everywhere, so none is listed.
    """
    weights = [rng.random() for _ in KINDS]
    kinds = list(KINDS) * FEWEST
    kinds += rng.choices(KINDS, weights, k=ENTRIES * times - len(kinds))
    rng.shuffle(kinds)
    facts = [
        Fact(rng.choice(WORDINGS).format(kind=kind, place=rng.choice(PLACES))) for kind in kinds
    ]
    subject = rng.choice(KINDS)
    return Puzzle(facts, ABOUT, QUESTION.format(kind=subject), (str(kinds.count(subject)),))
