"""`ledger`: balances that are overwritten again and again; the question asks for the last one of some accounts."""

from __future__ import annotations

from random import Random

from memagent_bench.tracking.names import invent, six_digits
from memagent_bench.tracking.puzzle import Fact, Puzzle

ACCOUNTS = 12
ENTRIES = 6
"""Entries of each account, in a short document."""
QUIET = 0.8
"""An account has its last entry somewhere in this last part of the text: if all continued to the end, a memory that
holds only the latest would do."""
ASKED = 4
WORDINGS = (
    "Ledger entry: the balance of account {name} is now {value} crowns.",
    "Ledger entry: {value} crowns is now the balance of account {name}.",
    "Ledger entry: account {name} now stands at {value} crowns.",
)
ABOUT = (
    "Between the sentences of a text stand ledger entries. Each gives an account a new balance, which "
    "replaces the one before."
)
QUESTION = (
    "What are the last balances of the accounts {names}? Reply with these {count} numbers alone, in digits, in this "
    "order, separated by commas."
)


def ledger(rng: Random, times: int) -> Puzzle:
    """Makes 12 accounts with 6 `times` entries each; asks for the last balances of 4 accounts.

    No balance occurs twice, so an outdated one is never right. Evidence is the last entry of each asked account.
    """
    accounts = invent(ACCOUNTS, rng)
    timed: list[tuple[float, str]] = []
    for name in accounts:
        last_one = 1 - QUIET * rng.random()
        moments = [last_one, *(last_one * rng.random() for _ in range(ENTRIES * times - 1))]
        timed += [(moment, name) for moment in moments]
    order = [name for _, name in sorted(timed)]
    values = six_digits(len(order), rng)
    subjects = rng.sample(accounts, ASKED)
    last = {name: place for place, name in enumerate(order)}
    facts: list[Fact] = []
    for place, (name, value) in enumerate(zip(order, values, strict=True)):
        text = rng.choice(WORDINGS).format(name=name, value=value)
        wanted = name in subjects and last[name] == place
        facts.append(Fact(text, (value,), (subjects.index(name),)) if wanted else Fact(text))
    names = ", ".join(subjects[:-1]) + " and " + subjects[-1]
    return Puzzle(
        facts,
        ABOUT,
        QUESTION.format(names=names, count=ASKED),
        tuple(values[last[name]] for name in subjects),
    )
