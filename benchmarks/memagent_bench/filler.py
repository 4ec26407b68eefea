"""Filler text of samples: units in a fixed order, each counted once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from threading import Lock

from memagent.errors import ConfigError
from memagent.tokens import TokenCounter

_BLOCK = 1024
"""Units counted at a time, so that a short sample doesn't wait for all of a long book."""


class Filler:
    """Units joined by `joiner`, repeated if more are needed than there are.

    A tokenizer that splits before (or after) each joiner makes the tokens of a text the sum of those of its
    units. So `tokens(n)` is free after the first time, and the most units that fit a length are found by bisection.
    Thread-safe.

    Args:
        name: what the units are, for records.
        units: texts without white space at their ends.
        joiner: `" "` or `"\\n"`.
        counter: the counter of lengths.

    Raises:
        ConfigError: there are no units.
    """

    def __init__(self, name: str, units: Sequence[str], joiner: str, counter: TokenCounter) -> None:
        if not units:
            raise ConfigError(f"{name!r} has no text to fill samples with; name other files")
        self.name, self.joiner = name, joiner
        self._units, self._counter = units, counter
        self._before = self._splits_before_joiner()
        self._sums = [0]
        """Tokens of the first i units, each with its joiner, as far as counted."""
        self._lock = Lock()
        self.edge = counter.count(units[0]) - self.cost(units[0])
        """Tokens of a text of units minus the sum of their costs: it has one joiner fewer than units."""

    def __len__(self) -> int:
        """Returns the number of units in one round."""
        return len(self._units)

    def cost(self, unit: str) -> int:
        """Returns the tokens that one more unit adds to a text of units, wherever it is inserted."""
        text = self.joiner + unit if self._before else unit + self.joiner
        return self._counter.count(text)

    def tokens(self, n: int) -> int:
        """Returns the tokens of the first n units, joined."""
        if n <= 0:
            return 0
        rounds, remainder = divmod(n, len(self._units))
        self._count(units=len(self._units) if rounds else remainder)
        full_tokens = rounds * self._sums[-1] if rounds else 0
        return full_tokens + self._sums[remainder] + self.edge

    def within(self, tokens: int) -> int:
        """Returns the most units whose joined text takes at most `tokens`; 0 if not even one fits."""
        room = tokens - self.edge
        self._count(tokens=room)
        if room < self._sums[-1]:
            return max(0, bisect_right(self._sums, room) - 1)
        rounds, remainder = divmod(room, self._sums[-1])
        return rounds * len(self._units) + bisect_right(self._sums, remainder) - 1

    def take(self, start: int, stop: int) -> list[str]:
        """Returns the units from `start` up to `stop`, exclusive, in order, wrapping around after the last."""
        size, n = len(self._units), max(0, stop - start)
        units = list(self._units[start % size : start % size + n])
        rounds, remainder = divmod(n - len(units), size)
        return units + list(self._units) * rounds + list(self._units[:remainder])

    def rounds(self, n: int) -> int:
        """Returns how often the first n units go through the pool; 1 if nothing is repeated."""
        return max(1, -(-n // len(self._units)))

    def ends(self, before: str, first: str, last: str, after: str) -> int:
        """Returns the tokens of a prompt beyond its units' costs: the text around them, and where they join.

        The exact tokens of `before + joiner.join(units) + after` are the sum of the units' costs and
        this, for a tokenizer that splits at each joiner. `first` and `last` are the first and the last of
        at least two units.
        """
        head, tail = (first, self.joiner + last) if self._before else (first + self.joiner, last)
        around = self._counter.count(before + head) + self._counter.count(tail + after)
        return around - self.cost(first) - self.cost(last)

    def _splits_before_joiner(self) -> bool:
        """Returns whether units are counted with the joiner before them, or after (if a sign takes the line end)."""
        count, joiner = self._counter.count, self.joiner
        first, second = self._units[0], self._units[-1]
        joint = count(first + joiner + second)
        split = count(first) + count(joiner + second)
        return split == joint or count(first + joiner) + count(second) != joint

    def _count(self, *, units: int = 0, tokens: int = 0) -> None:
        with self._lock:
            sums = self._sums
            while len(sums) <= len(self._units) and (len(sums) <= units or sums[-1] <= tokens):
                for unit in self._units[len(sums) - 1 : len(sums) - 1 + _BLOCK]:
                    sums.append(sums[-1] + self.cost(unit))
