"""`chain`: waymarks that point to each other, in random order; the question asks for the end of one chain."""

from __future__ import annotations

from random import Random

from memagent_bench.tracking.names import invent, six_digits
from memagent_bench.tracking.puzzle import Fact, Puzzle

CHAINS = 4
HOPS = 6
"""Hops from the first waymark of a chain to its last."""
HOP = (
    "Trail note: from waymark {source} the trail goes to waymark {target}.",
    "Trail note: waymark {target} is the next one after waymark {source}.",
)
END = (
    "Trail note: waymark {source} is the end of its trail, and its stone bears the number {value}."
)
ABOUT = (
    "Between the sentences of a text stand trail notes, in no order. Each says which waymark follows another one, "
    "or what is written at the end of a trail."
)
QUESTION = (
    "Follow the trail from waymark {name} to its end. Which number does the stone there bear? Reply with the number "
    "alone, in digits."
)


def chain(rng: Random, times: int) -> Puzzle:
    """Makes 4 chains of 6 hops and an end each, 28 notes in random order; asks for one chain's number.

    Each note of that chain is evidence. A memory holds it if it has the name that the note introduces, or the last
    note's number. A memory that joins two hops and drops the name between them counts as having lost it.

    `times` has no effect: notes are in random order, so a reader must keep all that may still be needed, and more
    notes would not fit any memory.
    """
    names = invent(CHAINS * (HOPS + 1), rng)
    values = six_digits(CHAINS, rng)
    chains = [names[first::CHAINS] for first in range(CHAINS)]
    links: list[tuple[int, str, str]] = []
    """Chain, waymark, what follows it."""
    for which, (marks, value) in enumerate(zip(chains, values, strict=True)):
        links += [(which, *pair) for pair in zip(marks, [*marks[1:], value], strict=True)]
    rng.shuffle(links)
    subject = rng.randrange(CHAINS)
    memory = {chains[subject][0]}  # already in the question
    facts: list[Fact] = []
    for which, source, target in links:
        if target == values[which]:
            text = END.format(source=source, value=target)
        else:
            text = rng.choice(HOP).format(source=source, target=target)
        if which != subject:
            facts.append(Fact(text))
            continue
        fresh = target if target not in memory or source in memory else source
        memory |= {source, target}
        facts.append(Fact(text, (fresh,), (0,)))
    return Puzzle(facts, ABOUT, QUESTION.format(name=chains[subject][0]), (values[subject],))
