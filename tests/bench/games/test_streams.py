"""Cards and orders that come once."""

from __future__ import annotations

import re

import pytest
from tests.bench.games.forgetting import call, native

from memagent.messages import Message, ToolCall
from memagent.tools import Toolset
from memagent_bench.games import expert, make, play
from memagent_bench.games.streams import Deck, DeckNotes, Stock


@pytest.mark.parametrize("seed", range(4))
async def test_the_cards_that_are_never_drawn_are_wanted(seed: int) -> None:
    game = Deck(seed=seed, difficulty=15)
    tools = Toolset(game.tools)
    drawn = [int((await tools.run(call("draw"))).text.split()[-1][:-1]) for _ in range(15)]
    assert "the deck is empty" in (await tools.run(call("draw"))).text
    missing = sorted({*range(1, 18)} - {*drawn})
    assert len(missing) == 2
    assert game.finish(f"{missing[0]},{missing[1]}")


def test_a_draw_that_is_shown_twice_or_out_of_turn_counts_once() -> None:
    notes = DeckNotes(left=5, total=28, squares=140)
    after = notes.fold("Draw 1: the card 4.")
    assert after is not None
    assert (after.total, after.squares, after.left) == (24, 124, 4)
    assert after.fold("Draw 1: the card 4.") is None
    assert after.fold("Draw 3: the card 4.") is None
    assert notes.fold("Draw 1: the card 4") is None


ORDER = re.compile(r"Order (\d+): (\d+) (\w+) come in, then (\d+) (\w+) are wanted\.")


async def stock_answer(game: Stock, *, wrong_at: int = 0) -> str:
    """Plays by the rules, but for one decision, and gives the right answer."""
    tools = Toolset(game.tools)
    names = game.task.split("20 each of ")[1].split(".")[0].split(", ")
    stock, text = dict.fromkeys(names, 20), (await tools.run(call("waiting"))).text
    while found := ORDER.search(text):
        order, come, what, wanted, good = found.groups()
        stock[what] += int(come)
        ship = stock[good] >= int(wanted)
        stock[good] -= int(wanted) * ship
        tool = "ship" if ship != (int(order) == wrong_at) else "refuse"
        text = (await tools.run(call(tool, order=int(order)))).text
    assert text.endswith("No order waits.")
    return str(stock[game.task.split("How many ")[1].split()[0]])


@pytest.mark.parametrize("seed", range(4))
async def test_orders_are_shipped_as_the_stock_covers_them(seed: int) -> None:
    game = Stock(seed=seed, difficulty=60)
    assert game.finish(await stock_answer(game))


async def test_one_wrong_decision_is_too_many() -> None:
    game = Stock(seed=1, difficulty=60)
    assert not game.finish(await stock_answer(game, wrong_at=7))


async def test_an_answer_before_all_orders_are_decided_is_wrong() -> None:
    right = await stock_answer(Stock(seed=1, difficulty=60))
    assert not Stock(seed=1, difficulty=60).finish(right)


async def test_an_order_that_does_not_wait_is_refused() -> None:
    tools = Toolset(Stock(seed=1, difficulty=60).tools)
    for tool in ("ship", "refuse"):
        output = await tools.run(call(tool, order=2))
        assert not output.ok
        assert "order 2 does not wait; Order 1: " in output.text


async def test_some_orders_have_to_be_refused() -> None:
    game, player = make("stock", seed=1, difficulty=60), expert("stock")
    messages = [Message(role="user", content=game.task)]
    calls: list[str] = []
    while isinstance(reply := player.reply(messages), ToolCall):
        calls.append(reply.name)
        messages += native([(reply, (await Toolset(game.tools).run(reply)).text)])
    assert {"ship", "refuse"} < set(calls)
    assert (await play(make("stock", seed=1, difficulty=60), player)).verdict == 1.0
