"""Books that are read page by page: payments and ballots."""

from __future__ import annotations

import random
import re
from typing import Self

from memagent_bench.games.base import Deal, Game, query, within
from memagent_bench.games.experts import Notes, numbers, word
from memagent_bench.games.transcript import Call, call
from memagent_bench.games.words import make_names

PAYMENT = re.compile(r"(\w+) pays (\w+) (\d+)")
OPENING = 50
EVENTS = 3
VOTES = 5


class Ledger(Game):
    """Read n pages of payments; those that aren't covered don't count."""

    name = "ledger"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        people = make_names(rng, 6)
        balance = dict.fromkeys(people, OPENING)
        self._pages: list[str] = []
        for _ in range(difficulty):
            payments: list[str] = []
            for _ in range(EVENTS):
                (giver, taker), amount = rng.sample(people, 2), rng.randint(1, 40)
                payments.append(f"{giver} pays {taker} {amount}")
                pay(balance, giver, taker, amount)
            self._pages.append("; ".join(payments))
        person = rng.choice(people)
        task = (
            f"A ledger of {difficulty} pages, numbered from 1, lists payments in order. At first {', '.join(people)} "
            f"have {OPENING} coins each. A payment of more than the giver has at that time is not made. How many coins "
            f"has {person} at the end?"
        )
        return Deal(task, str(balance[person]))

    @query
    def page(self, number: int) -> str:
        """Reads a page of the ledger."""
        return f"Page {number}: {self._pages[within('page', number, len(self._pages))]}."


def pay(balance: dict[str, int], giver: str, taker: str, amount: int) -> None:
    """Transfers an amount, if it is covered."""
    if balance[giver] >= amount:
        balance[giver] -= amount
        balance[taker] += amount


class LedgerNotes(Notes):
    """Everyone's balance after the pages read so far."""

    asked: str
    pages: int
    at: int = 1
    balance: dict[str, int]

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        people = word(r"At first ([a-z, ]+) have \d+ coins", task).split(", ")
        pages = numbers(r"A ledger of (\d+) pages", task)[0]
        person = word(r"How many coins has (\w+)", task)
        return cls(asked=person, pages=pages, balance=dict.fromkeys(people, OPENING))

    def next(self) -> Call | str:
        """Reads the next page."""
        if self.at > self.pages:
            return str(self.balance[self.asked])
        return call("page", number=self.at)

    def fold(self, result: str) -> Self | None:
        """Makes the payments of the page."""
        text = result.removeprefix(f"Page {self.at}: ").removesuffix(".")
        parts = [PAYMENT.fullmatch(part) for part in text.split("; ")]
        payments = [part for part in parts if part is not None]
        if len(payments) != len(parts) or len(parts) != EVENTS or not result.endswith("."):
            return None
        balance = self.balance.copy()
        for part in payments:
            pay(balance, part[1], part[2], int(part[3]))
        return self.but(at=self.at + 1, balance=balance)


class Votes(Game):
    """Read n pages of ballots for more names than can be remembered; one has an absolute majority."""

    name = "votes"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        winner, *others = make_names(rng, 2 + difficulty)
        count = difficulty * VOTES
        won = count // 2 + 1
        ballots = [winner] * won + [rng.choice(others) for _ in range(count - won)]
        rng.shuffle(ballots)
        self._pages = [", ".join(ballots[at : at + VOTES]) for at in range(0, count, VOTES)]
        task = (
            f"There are {difficulty} pages of ballots, numbered from 1. One name stands on more than half of all "
            "ballots. Which one is it?"
        )
        return Deal(task, winner)

    @query
    def ballots(self, page: int) -> str:
        """Reads a page of ballots."""
        return f"Page {page}: {self._pages[within('page', page, len(self._pages))]}."


class VotesNotes(Notes):
    """A name, and how many of its ballots are not yet cancelled by others.

    Source: Boyer and Moore's majority vote.
    """

    pages: int
    at: int = 1
    name: str = ""
    lead: int = 0

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        return cls(pages=numbers(r"There are (\d+) pages of ballots", task)[0])

    def next(self) -> Call | str:
        """Reads the next page."""
        return self.name if self.at > self.pages else call("ballots", page=self.at)

    def fold(self, result: str) -> Self | None:
        """Lets each ballot for another name cancel one."""
        names = result.removeprefix(f"Page {self.at}: ").removesuffix(".").split(", ")
        if len(names) != VOTES or not result.endswith(".") or not all(map(str.isalpha, names)):
            return None
        name, lead = self.name, self.lead
        for vote in names:
            if not lead:
                name = vote
            lead += 1 if vote == name else -1
        return self.but(at=self.at + 1, name=name, lead=lead)
