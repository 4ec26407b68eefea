"""Cards and orders that come one at a time, and only once."""

from __future__ import annotations

import math
import random
import re
from typing import Self

from memagent.errors import ToolError
from memagent.texts import quote
from memagent_bench.games.base import Deal, Game, act, query
from memagent_bench.games.experts import Notes, numbers, word
from memagent_bench.games.transcript import Call, call
from memagent_bench.games.words import GOODS

CARD = re.compile(r"Draw (\d+): the card (\d+)\.")
ORDER = re.compile(
    r"(?:Order (\d+) is (?:shipped|refused)\. )?Order (\d+): "
    r"(\d+) (\w+) come in, then (\d+) (\w+) are wanted\."
)
CLOSED = re.compile(r"Order (\d+) is (?:shipped|refused)\. No order waits\.")


class Deck(Game):
    """Draw n cards one by one, and say which two are missing."""

    name = "deck"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        cards = rng.sample(range(1, difficulty + 3), difficulty + 2)
        self._cards, missing = cards[2:], sorted(cards[:2])
        self._drawn = 0
        task = (
            f"Of {difficulty + 2} cards, numbered 1 to {difficulty + 2}, two are missing. The other {difficulty} are "
            "in a deck, and can be drawn one by one. Which two are missing? The answer is their numbers, the smaller "
            "one first: 1, 2."
        )
        return Deal(task, ", ".join(map(str, missing)))

    @act
    def draw(self) -> str:
        """Draws the next card. It does not come back."""
        if self._drawn == len(self._cards):
            raise ToolError("the deck is empty")
        self._drawn += 1
        return f"Draw {self._drawn}: the card {self._cards[self._drawn - 1]}."


class DeckNotes(Notes):
    """Cards drawn, and the sums of the missing numbers and of their squares."""

    left: int
    drawn: int = 0
    total: int
    squares: int

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        cards = numbers(r"Of (\d+) cards", task)[0]
        squares = cards * (cards + 1) * (2 * cards + 1) // 6
        return cls(left=cards - 2, total=cards * (cards + 1) // 2, squares=squares)

    def next(self) -> Call | str:
        """Draws; at the end a + b = s and a² + b² = q give a, b = (s ± sqrt(2q - s²)) / 2."""
        if self.left:
            return call("draw")
        apart = math.isqrt(max(0, 2 * self.squares - self.total**2))
        return f"{(self.total - apart) // 2}, {(self.total + apart) // 2}"

    def fold(self, result: str) -> Self | None:
        """Subtracts the card from both sums."""
        match = CARD.fullmatch(result)
        if match is None or int(match[1]) != self.drawn + 1:
            return None
        card = int(match[2])
        cards, total, squares = self.left - 1, self.total - card, self.squares - card**2
        return self.but(left=cards, drawn=self.drawn + 1, total=total, squares=squares)


class Stock(Game):
    """Ship n orders as they come, or refuse those that the stock doesn't cover; no decision may be wrong."""

    name = "stock"

    def _deal(self, rng: random.Random, difficulty: int) -> Deal:
        goods = rng.sample(GOODS, 4)
        self._stock = dict.fromkeys(goods, 20)
        self._orders = [
            (rng.randint(1, 9), rng.choice(goods), rng.randint(1, 12), rng.choice(goods))
            for _ in range(max(1, difficulty - 1))
        ]
        self._at, self._wrong = 0, 0
        stock = self._stock.copy()
        for delivered, what, wanted, good in self._orders:
            stock[what] += delivered
            stock[good] -= wanted if stock[good] >= wanted else 0
        product = goods[0]
        task = (
            f"A store holds 20 each of {', '.join(sorted(goods))}. {len(self._orders)} orders wait in a row. Ship each "
            "order that the stock covers, after what comes in with it; refuse each that it does not. No decision may "
            f"be wrong. How many {product} are left when all orders are through?"
        )
        return Deal(task, str(stock[product]))

    @query
    def waiting(self) -> str:
        """Tells which order waits."""
        if self._at == len(self._orders):
            return "No order waits."
        delivered, what, wanted, good = self._orders[self._at]
        return f"Order {self._at + 1}: {delivered} {what} come in, then {wanted} {good} are wanted."

    @act
    def ship(self, order: int) -> str:
        """Ships the order that waits, named by its number, and tells the next one."""
        return self._decide(order, shipped=True)

    @act
    def refuse(self, order: int) -> str:
        """Refuses the order that waits, named by its number, and tells the next one."""
        return self._decide(order, shipped=False)

    def _decide(self, order: int, *, shipped: bool) -> str:
        if order != self._at + 1 or self._at == len(self._orders):
            raise ToolError(f"order {quote(order)} does not wait; {self.waiting()}")
        delivered, what, wanted, good = self._orders[self._at]
        self._stock[what] += delivered
        covered = self._stock[good] >= wanted
        self._stock[good] -= wanted if covered else 0
        self._wrong += covered != shipped
        self._at += 1
        return f"Order {order} is {'shipped' if shipped else 'refused'}. {self.waiting()}"

    def _judge(self, answer: str) -> bool:
        decided = self._at == len(self._orders) and not self._wrong
        return decided and super()._judge(answer)


class StockNotes(Notes):
    """The stock with the last delivery, and the waiting order: number, amount, good."""

    asked: str
    stock: dict[str, int]
    order: int = 0
    """0: not looked yet."""
    wanted: int = 0
    good: str = ""
    closed: bool = False

    @classmethod
    def start(cls, task: str) -> Self:
        """See `Notes.start`."""
        goods = word(r"A store holds 20 each of ([a-z, ]+)\.", task).split(", ")
        return cls(asked=word(r"How many (\w+) are left", task), stock=dict.fromkeys(goods, 20))

    def next(self) -> Call | str:
        """Ships what the stock covers."""
        if self.closed:
            return str(self.stock[self.asked])
        if not self.order:
            return call("waiting")
        return call("ship" if self._is_covered() else "refuse", order=self.order)

    def fold(self, result: str) -> Self | None:
        """Removes what was shipped, and adds what came with the next order."""
        closed, order = CLOSED.fullmatch(result), ORDER.fullmatch(result)
        match = closed or order
        decided = str(self.order) if self.order else None
        if match is None or match[1] != decided:
            return None
        stock = self.stock.copy()
        if self.order and self._is_covered():
            stock[self.good] -= self.wanted
        if order is None:
            return self.but(stock=stock, closed=True)
        stock[order[4]] = stock.get(order[4], 0) + int(order[3])
        wanted, good = int(order[5]), order[6]
        return self.but(stock=stock, order=int(order[2]), wanted=wanted, good=good)

    def _is_covered(self) -> bool:
        return self.stock.get(self.good, 0) >= self.wanted
