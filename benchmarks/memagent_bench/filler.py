"""Text that a sample is filled up with: units in a fixed order, each counted once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from threading import Lock

from memagent.errors import ConfigError
from memagent.tokens import TokenCounter

_BLOCK = 1024
"""Units counted at a time: a short sample does not wait for all of a long book."""


class Filler:
    """Units joined by `joiner`, over and over where more are wanted than there are.

    A tokenizer that splits before (or after) each joiner makes the tokens of a text the sum of those of its
    units. So `tokens(n)` costs nothing after the first time, and the most units within a length are found by bisection.
    Safe in threads.

    Args:
        name: what the units are, for records.
        units: texts without white space at their ends.
        joiner: `" "` or `"\\n"`.
        counter: by which lengths are named.

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
        """Tokens of the first i units, each with its joiner; as far as was counted."""
        self._lock = Lock()
        self.edge = counter.count(units[0]) - self.cost(units[0])
        """Tokens of a text of units less the sum of their costs: the joiner that there is one less of."""

    def __len__(self) -> int:
        """Units in one round."""
        return len(self._units)

    def cost(self, unit: str) -> int:
        """Tokens that one unit more adds to a text of units, wherever it is put in."""
        text = self.joiner + unit if self._before else unit + self.joiner
        return self._counter.count(text)

    def tokens(self, n: int) -> int:
        """Tokens of the first n units, joined."""
        if n <= 0:
            return 0
        rounds, remainder = divmod(n, len(self._units))
        self._count(units=len(self._units) if rounds else remainder)
        full_tokens = rounds * self._sums[-1] if rounds else 0
        return full_tokens + self._sums[remainder] + self.edge

    def within(self, tokens: int) -> int:
        """Most units whose joined text takes at most `tokens`; 0 where not even one does."""
        room = tokens - self.edge
        self._count(tokens=room)
        if room < self._sums[-1]:
            return max(0, bisect_right(self._sums, room) - 1)
        rounds, remainder = divmod(room, self._sums[-1])
        return rounds * len(self._units) + bisect_right(self._sums, remainder) - 1

    def take(self, start: int, stop: int) -> list[str]:
        """Units from `start` to before `stop`, in order, wrapping around after the last."""
        size, n = len(self._units), max(0, stop - start)
        units = list(self._units[start % size : start % size + n])
        rounds, remainder = divmod(n - len(units), size)
        return units + list(self._units) * rounds + list(self._units[:remainder])

    def rounds(self, n: int) -> int:
        """How often the first n units go through the pool; 1 where nothing is repeated."""
        return max(1, -(-n // len(self._units)))

    def ends(self, before: str, first: str, last: str, after: str) -> int:
        """Tokens that a prompt takes on top of its units' costs: what stands around them, and how it meets them.

        The exact tokens of `before + joiner.join(units) + after` are the sum of the units' costs and
        this, for a tokenizer that splits at each joiner. `first` and `last` are the first and the last of
        at least two units.
        """
        head, tail = (first, self.joiner + last) if self._before else (first + self.joiner, last)
        around = self._counter.count(before + head) + self._counter.count(tail + after)
        return around - self.cost(first) - self.cost(last)

    def _splits_before_joiner(self) -> bool:
        """Whether units are counted with the joiner before them, or (a sign takes the line end) after."""
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
