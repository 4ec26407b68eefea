"""Payments and ballots."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.bench.games.forgetting import call, told

from memagent.tools import Toolset
from memagent_bench.games.pages import Ledger, LedgerNotes, Votes, VotesNotes, pay


def test_a_payment_that_is_not_covered_falls_away() -> None:
    balance = {"a": 10, "b": 0}
    pay(balance, "a", "b", 10)
    pay(balance, "a", "b", 1)
    assert balance == {"a": 0, "b": 10}


async def test_pages_are_read_by_number() -> None:
    tools = Toolset(Ledger(seed=0, difficulty=10).tools)
    text = (await tools.run(call("page", number=10))).text
    assert text.startswith("Page 10: ")
    assert text.count(" pays ") == 3
    assert not (await tools.run(call("page", number=11))).ok


@pytest.mark.parametrize("seed", range(4))
async def test_the_coins_stay_the_same_in_all(seed: int) -> None:
    game = Ledger(seed=seed, difficulty=50)
    notes = LedgerNotes.start(game.task)
    refused = 0
    for number in range(1, 51):
        after = notes.fold(await told(game, "page", number=number))
        assert after is not None
        refused += after.balance == notes.balance
        notes = after
        assert min(notes.balance.values()) >= 0
        assert sum(notes.balance.values()) == 300
    balances = {name: coins for name, coins in notes.balance.items() if name != notes.asked}
    assert game.finish(str(300 - sum(balances.values())))


@pytest.mark.parametrize(
    "text",
    ["Page 1: a pays b 2; b pays a 1.", "Page 1: a pays b 2; b pays a 1; a pays b 3", "Page 2: x."],
)
def test_a_page_that_was_cut_is_passed_over(text: str) -> None:
    notes = LedgerNotes(asked="a", pages=3, balance={"a": 9, "b": 9})
    assert notes.fold(text) is None
    assert VotesNotes(pages=3).fold(text) is None


@pytest.mark.parametrize("seed", range(4))
async def test_one_name_has_more_than_half_of_the_ballots(seed: int) -> None:
    game = Votes(seed=seed, difficulty=40)
    pages = [await told(game, "ballots", page=page) for page in range(1, 41)]
    votes = Counter(name for page in pages for name in page.split(": ")[1][:-1].split(", "))
    (name, count), *_ = votes.most_common()
    assert votes.total() == 200
    assert count == 101
    assert len(votes) > 25
    assert game.finish(name.upper())
