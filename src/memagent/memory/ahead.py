"""Read-ahead: how many chunks to send at once, and taking their replies in order (ADR 0019)."""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

from memagent.run.exchange import Exchange

SHARE = 0.75
"""Maximum expected changes of the memory in a round of `auto`; costs 1.42 calls per chunk."""
LAPSE = 1 / 64
"""Share of past observations forgotten with each chunk, since notes come in bursts."""
WEIGHT = 1 / 2
"""Weight of the latest round in the average time of a reply."""
TRUST = 31 / 32
"""Weight of old times for rounds up to twice the latest size, not measured since: the server may be free by now."""
WORTH = 0.9
"""Share of the highest speed that is enough: smaller rounds waste fewer calls."""


class Pace:
    """Chooses the size of the next round.

    If a chunk changes the memory at rate p, a round of B chunks advances by (1 - (1 - p)^B) / p chunks on average.

    Args:
        wish: chunks per round, or `auto`: the fewest that reach nine tenths of the most chunks per second, but no more
            than contain 0.75 changes at the rate seen so far. Without free slots, a round's later replies take longer.
        most: maximum calls in flight.
    """

    def __init__(self, wish: int | Literal["auto"], most: int) -> None:
        self._wish = None if wish == "auto" else wish
        self._most = most
        # Before anything is seen: one change in six chunks.
        self._chunks, self._changes = 6.0, 1.0
        self._last = 2
        """Size of the last round; the next one is at most twice as large, so that trying costs little."""
        self._seconds: list[float] = []
        """Average seconds from the start of a round to its first reply that keeps the memory, its second, and so on."""

    def most(self, questions: int) -> int:
        """Returns the most chunks that each of several questions sends in a round."""
        share = max(1, self._most // questions)
        return share if self._wish is None else min(self._wish, share)

    def size(self, questions: int) -> int:
        """Returns how many chunks each of several questions sends in the next round."""
        max_size = self.most(questions)
        if self._wish is not None:
            return max_size
        max_size = max(1, min(max_size, int(SHARE * self._chunks / self._changes), 2 * self._last))
        speeds = [self._speed(size) for size in range(1, max_size + 1)]
        threshold = WORTH * max(speeds)
        return 1 + next(n for n, speed in enumerate(speeds) if speed >= threshold)

    def _speed(self, size: int) -> float:
        """Returns a round's chunks per second, without the time for changes, which is the same for every size."""
        rate = min(1.0, self._changes / self._chunks)
        advance = (1 - (1 - rate) ** size) / rate
        # Larger rounds than those tried are assumed to take no longer.
        return advance / max((self._seconds[:size] or [1.0])[-1], sys.float_info.epsilon)

    def note(self, sent: int, taken: int, changes: int, seconds: Sequence[float]) -> None:
        """Records a round: chunks sent, taken and changing the memory, and the seconds to each reply that kept it."""
        self._last = sent
        averages, count = self._seconds, len(seconds)
        old_time = averages[count - 1] if 0 < count <= len(averages) else 0.0
        for place, time in enumerate(seconds):
            if place == len(averages):
                averages.append(time)
            averages[place] += WEIGHT * (time - averages[place])
        if old_time:
            ratio = min(1.0, seconds[-1] / old_time)
            for place in range(count, len(averages)):
                trust = TRUST if place < 2 * count else 1.0
                averages[place] = seconds[-1] + trust * (ratio * averages[place] - seconds[-1])
        retention = (1 - LAPSE) ** taken
        self._chunks = self._chunks * retention + taken
        self._changes = self._changes * retention + changes


@asynccontextmanager
async def sent_ahead(
    exchanges: Sequence[Exchange[Any]], ask: Callable[[Exchange[Any]], Awaitable[None]]
) -> AsyncGenerator[Callable[[int], Awaitable[None]]]:
    """Makes exchanges concurrently. Yields a function that takes the reply to one, by its place; await it in order.

    Exchanges not taken by the end of the block are cancelled.
    """
    loop = asyncio.get_running_loop()
    turns = [loop.create_future() for _ in exchanges]
    for exchange, turn in zip(exchanges, turns, strict=True):
        exchange.turn = turn
    calls = [asyncio.ensure_future(ask(exchange)) for exchange in exchanges]

    async def take(place: int) -> None:
        turns[place].set_result(None)
        await calls[place]

    try:
        yield take
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
