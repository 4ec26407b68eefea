"""Read-ahead: how many chunks to send at once, and taking their replies in order (ADR 0019)."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Literal

from memagent.run.exchange import Exchange

SHARE = 0.75
"""Changes that `auto` expects among a round's chunks, at a cost of 1.42 calls per chunk."""
LAPSE = 1 / 64
"""Share of past observations forgotten with each chunk, since notes come in bursts."""


class Pace:
    """The size of the next round.

    With changes at rate p, a round of B chunks advances by (1 - (1 - p)^B) / p of them on average.

    Args:
        wish: chunks per round, or `auto`: as many as contain 0.75 changes at the rate seen so far.
        most: maximum calls in flight.
    """

    def __init__(self, wish: int | Literal["auto"], most: int) -> None:
        self._wish = None if wish == "auto" else wish
        self._most = most
        # Before anything is seen: one change in six chunks.
        self._chunks, self._changes = 6.0, 1.0

    def most(self, questions: int) -> int:
        """Maximum chunks that each of several questions sends in a round."""
        share = max(1, self._most // questions)
        return share if self._wish is None else min(self._wish, share)

    def size(self, questions: int) -> int:
        """Chunks that each of several questions sends in the next round."""
        most = self.most(questions)
        if self._wish is not None:
            return most
        return max(1, min(most, int(SHARE * self._chunks / self._changes)))

    def note(self, taken: int, changes: int) -> None:
        """Records a round: chunks taken, and how many of them changed the memory."""
        stays = (1 - LAPSE) ** taken
        self._chunks = self._chunks * stays + taken
        self._changes = self._changes * stays + changes


@asynccontextmanager
async def sent_ahead(
    exchanges: Sequence[Exchange[Any]], ask: Callable[[Exchange[Any]], Awaitable[None]]
) -> AsyncGenerator[list[Callable[[], Awaitable[None]]]]:
    """Makes exchanges concurrently. Yields a function for each, to await in order, that takes its reply.

    Exchanges not taken by the end of the block are cancelled.
    """
    loop = asyncio.get_running_loop()
    turns = [loop.create_future() for _ in exchanges]
    for exchange, turn in zip(exchanges, turns, strict=True):
        exchange.turn = turn
    calls = [asyncio.ensure_future(ask(exchange)) for exchange in exchanges]

    async def take(turn: asyncio.Future[None], call: asyncio.Future[None]) -> None:
        turn.set_result(None)
        await call

    try:
        yield list(map(partial(partial, take), turns, calls))
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
