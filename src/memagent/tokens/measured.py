"""A text that is tokenised once, in parts that meet at stable points, and only as far as needed."""

from __future__ import annotations

from collections.abc import Callable, Sized
from dataclasses import dataclass, field, replace
from typing import Any

from memagent.texts import last_end, repair_surrogates
from memagent.tokens.locality import STABLE

FIRST_SHARE = 0.65
"""Length of the first part, as a share of the text: a chunk's window is nearly always cut later than that."""
STEP_SHARE, STEP_CHARS = 1 / 48, 128
"""Length of each later part, the larger of the two: the part that is cut is tokenised twice, and shorter ones
would cost as much in calls."""


@dataclass(eq=False)
class MeasuredText:
    """A text whose parts are tokenised one after the other."""

    text: str
    """Without lone surrogates."""
    encode: Callable[[str], Sized]
    """Tokenises a text; the length of the result is its token count."""
    cut: Callable[[str, Any, int], int]
    """Counts the characters within a text's first N tokens, with N at least 1 and below the text's count."""
    local: bool = field(kw_only=True)
    """Whether the tokeniser has stable points (`locality`); without them the text is one part."""

    def __post_init__(self) -> None:
        self._parts: list[tuple[int, int, int, Sized]] = []
        """Each part's first and one past its last character, the tokens before it, and its own tokens."""
        self._chars = self._tokens = 0

    @property
    def tokens(self) -> int:
        """Tokens in the whole text."""
        if self._chars < len(self.text):
            self._take(len(self.text))
        return self._tokens

    def chars_within(self, limit: int) -> int:
        """Returns the characters of the longest prefix within the first `limit` tokens."""
        while self._tokens < limit and self._chars < len(self.text):
            self._take(self._next_end())
        if self._tokens <= limit:
            return self._chars
        for start, end, offset, encoded in reversed(self._parts):
            if offset + len(encoded) == limit:
                return end
            if offset < limit:
                return start + self.cut(self.text[start:end], encoded, limit - offset)
        return 0

    def tokens_of_prefix(self, chars: int) -> int:
        """Returns exactly `count(text[:chars])`."""
        if chars >= len(self.text):
            return self.tokens
        while self._chars < chars:
            self._take(self._next_end())
        for start, _, offset, _ in reversed(self._parts):
            if start < chars:
                return offset + len(self.encode(self.text[start:chars]))
        return 0

    def rest(self, start: int, text: str) -> MeasuredText:
        """Measures `text`, which continues this one from `start` on, reusing what is known."""
        suffix = replace(self, text=repair_surrogates(text))
        for part_start, end, _, encoded in self._parts:
            if part_start >= start and end < len(self.text):
                if part_start > start and not suffix._parts:
                    suffix._take(part_start - start)
                suffix._take(end - start, encoded)
        return suffix

    def _next_end(self) -> int:
        length = len(self.text)
        step = max(int(length * STEP_SHARE), STEP_CHARS)
        target = max(int(length * FIRST_SHARE), self._chars + step)
        if not self.local or target >= length:
            return length
        return last_end(STABLE, self.text, self._chars, target, 32) or length  # a few words

    def _take(self, end: int, encoding: Sized | None = None) -> None:
        encoded = self.encode(self.text[self._chars : end]) if encoding is None else encoding
        self._parts.append((self._chars, end, self._tokens, encoded))
        self._chars = end
        self._tokens += len(encoded)
