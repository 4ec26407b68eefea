"""How many chunks are sent at once (ADR 0019)."""

from __future__ import annotations

from typing import Literal

SHARE = 0.75
"""Changes that `auto` expects among the chunks of a round: it then pays 1.42 calls a chunk."""
LAPSE = 1 / 64
"""How much of what was seen is forgotten with each chunk: notes come in bursts."""


class Pace:
    """The size of the next round.

    With changes at rate p, a round of B chunks advances by (1 - (1 - p)^B) / p of them on average.

    Args:
        wish: chunks of each round, or `auto`: as many as hold 0.75 changes at the rate seen so far.
        most: calls that may be in flight at once.
    """

    def __init__(self, wish: int | Literal["auto"], most: int) -> None:
        self._wish = None if wish == "auto" else wish
        self._most = most
        # Before anything is seen: one change in six chunks.
        self._chunks, self._changes = 6.0, 1.0

    def most(self, questions: int) -> int:
        """Most chunks that each of several questions sends in a round."""
        share = max(1, self._most // questions)
        return share if self._wish is None else min(self._wish, share)

    def size(self, questions: int) -> int:
        """Chunks that each of several questions sends in the next round."""
        most = self.most(questions)
        if self._wish is not None:
            return most
        return max(1, min(most, int(SHARE * self._chunks / self._changes)))

    def note(self, taken: int, changes: int) -> None:
        """What came of a round: chunks that were taken, and how many of them changed the memory."""
        stays = (1 - LAPSE) ** taken
        self._chunks = self._chunks * stays + taken
        self._changes = self._changes * stays + changes
