"""A window: the text that one chunk is cut from, tokenised once in its neutralised form."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass
from itertools import count
from operator import add

from memagent.chunking.cuts import Cuts, next_grapheme, place
from memagent.tokens.base import Measured, TokenCounter
from memagent.tokens.measured import MeasuredText

Neutralise = Callable[[str], tuple[str, Sequence[int]]]
"""Neutralises raw text: returns the safe text and, in ascending order, the positions of the raw characters
after which it inserted one U+2060 each. Nothing else may differ; if a text needs none, nor do its prefixes."""


@dataclass(eq=False)
class Window:
    """Reuses the tokens of an earlier window of the document (`before`, in which this one begins at `start`)."""

    raw: str
    counter: TokenCounter
    neutralise: Neutralise
    before: InitVar[Window | None] = None
    start: InitVar[int] = 0

    def __post_init__(self, before: Window | None, start: int) -> None:
        self._safe, positions = self.neutralise(self.raw)
        # Positions of the inserted characters in the safe text.
        self._inserted = list(map(add, positions, count(1)))
        old_measurement = None
        if before and not before._inserted and self._safe.startswith(before._safe[start:]):
            old_measurement = before._measured
        if isinstance(old_measurement, MeasuredText):
            self._measured: Measured = old_measurement.rest(start, self._safe)
        else:
            self._measured = self.counter.measure(self._safe)

    def chars_within(self, limit: int) -> int:
        """Returns how many raw characters have their safe form within the first `limit` tokens."""
        safe = self._measured.chars_within(limit)
        inserted = bisect_left(self._inserted, safe)
        # Right before an inserted character, its raw character must go too.
        cut_off = inserted < len(self._inserted) and self._inserted[inserted] == safe
        return max(0, safe - inserted - cut_off)

    def prefix(self, end: int) -> tuple[str, int, int]:
        """Returns the safe text of raw[:end], how many characters were inserted, and its tokens."""
        raw = self.raw[:end]
        safe, positions = self.neutralise(raw) if self._inserted else (raw, ())
        # Else it is cut inside a look-alike, and the rest may be harmless.
        clean = self._safe.startswith(safe)
        tokens = self._measured.tokens_of_prefix(len(safe)) if clean else self.counter.count(safe)
        return safe, len(positions), tokens

    def fit(
        self, bound: int, limit: int, cuts: Cuts, floor: int
    ) -> tuple[int, str, int, int] | None:
        """Finds a position after `floor` to cut at, and its `prefix`; None if not even one more character fits.

        A prefix may have more tokens than it had within the window, as a word or a look-alike is cut, so the cut
        moves back in doubling steps. About `bound` characters fit, or all if the document ends with the window.
        """
        end, allowance, factor = bound, limit, 1
        if bound < len(self.raw):
            end = place(self.raw, bound := max(bound, floor + 1), cuts, floor)
        while (prefix := self.prefix(end))[2] > limit:
            if bound <= floor + 1:
                return None
            allowance -= factor * (prefix[2] - limit)
            factor *= 2
            bound = max(min(self.chars_within(allowance), end - 1), floor + 1)
            end = place(self.raw, bound, cuts, floor)
        for _ in range(16 if cuts == "exact" else 0):
            # The cut may have merged two tokens. A cluster that touches the window's end may continue after it.
            next_end = next_grapheme(self.raw, end)
            if next_end >= len(self.raw) or (longer_prefix := self.prefix(next_end))[2] > limit:
                break
            end, prefix = next_end, longer_prefix
        return end, *prefix
