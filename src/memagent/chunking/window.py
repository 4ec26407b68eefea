"""A window: the text that one chunk is cut from, tokenised once in its neutralised form."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from memagent.chunking.cuts import Cuts, next_grapheme, place
from memagent.tokens.base import Measured, TokenCounter
from memagent.tokens.measured import MeasuredText

Neutralise = Callable[[str], tuple[str, Sequence[int]]]
"""Makes raw text safe: returns the safe text, and in ascending order the positions of the raw characters
behind which it put one U+2060 each. Nothing else may differ, and a text without any has none in its prefixes."""


class Window:
    """The text that a chunk is cut from, tokenised once in its neutralised form.

    Args:
        raw: the text.
        counter: counts tokens.
        neutralise: makes it safe.
        before: a window of the same document: what it has tokenised is not tokenised again.
        start: where in it this one starts.
    """

    def __init__(
        self,
        raw: str,
        counter: TokenCounter,
        neutralise: Neutralise,
        before: Window | None = None,
        start: int = 0,
    ) -> None:
        self.raw = raw
        self._counter = counter
        self._neutralise = neutralise
        self._safe, positions = neutralise(raw)
        # Where the inserted characters stand in the safe text.
        self._inserted: list[int] = []
        for i, position in enumerate(positions):
            self._inserted.append(position + 1 + i)
        known = before._measured if before and not before._inserted else None
        if (
            before
            and isinstance(known, MeasuredText)
            and self._safe.startswith(before._safe[start:])
        ):
            self._measured: Measured = known.rest(start, self._safe)
        else:
            self._measured = counter.measure(self._safe)
        self._asked: tuple[int, tuple[str, int, int]] = (0, ("", 0, 0))

    @property
    def tokens(self) -> int:
        """Tokens of the whole window, all of which this tokenises."""
        return self._measured.tokens

    def chars_within(self, limit: int) -> int:
        """Raw characters whose safe form is within the first `limit` tokens."""
        safe = self._measured.chars_within(limit)
        inserted = bisect_left(self._inserted, safe)
        # Right before an inserted character, its raw character has to go as well.
        cut_off = inserted < len(self._inserted) and self._inserted[inserted] == safe
        return max(0, safe - inserted - cut_off)

    def prefix(self, end: int) -> tuple[str, int, int]:
        """The safe text of raw[:end], how many characters were inserted in it, and its tokens."""
        if end == self._asked[0]:  # the choice of a cut ends with asking for it once more
            return self._asked[1]
        raw = self.raw[:end]
        safe, positions = self._neutralise(raw) if self._inserted else (raw, ())
        if self._safe.startswith(safe):
            tokens = self._measured.tokens_of_prefix(len(safe))
        else:  # cut inside a look-alike: what is left of it may be harmless
            tokens = self._counter.count(safe)
        self._asked = (end, (safe, len(positions), tokens))
        return self._asked[1]


def end_within(window: Window, bound: int, limit: int, cuts: Cuts, floor: int) -> int | None:
    """Where to cut so that the prefix is within the limit when counted by itself.

    Counted by itself a prefix may have more tokens than the window had up to there (a word is cut, a
    look-alike too), so the cut moves back until it fits, in steps that double.

    Returns:
        A position behind `floor`, or None where not even one character more fits.
    """
    allowed, factor = limit, 1
    bound = max(bound, floor + 1)
    while True:
        end = place(window.raw, bound, cuts, floor)
        tokens = window.prefix(end)[2]
        if tokens <= limit:
            break
        if bound <= floor + 1:
            return None
        allowed -= factor * (tokens - limit)
        factor *= 2
        bound = max(min(window.chars_within(allowed), end - 1), floor + 1)
    return _stretch(window, end, limit) if cuts == "exact" else end


def _stretch(window: Window, end: int, limit: int) -> int:
    """Takes further clusters while they fit: the cut may have turned two tokens into one."""
    for _ in range(16):  # what one token can hold; hardly ever more than one round
        after = next_grapheme(window.raw, end)
        # A cluster that touches the window's end may go on behind it.
        if after >= len(window.raw) or window.prefix(after)[2] > limit:
            break
        end = after
    return end
