"""A text that was tokenised once, in two forms: by the bytes of its tokens, or by their offsets."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from memagent.tokens.locality import stable_points

if TYPE_CHECKING:
    from tokenizers import Encoding

_TRIES = 8
"""Stable points tried before the whole prefix is counted: nearly always the first one serves."""


class _Cut:
    """Counts prefixes: tokens before a stable point, plus the tail behind it counted by itself.

    Args:
        text: C characters.
        tokens: tokens of the text.
        count: counts a text by itself.
        reach: see `locality.reach`; None recounts every prefix in full.
    """

    def __init__(self, text: str, tokens: int, count: Callable[[str], int], reach: int | None):
        self._text = text
        self._tokens = tokens
        self._count = count
        self._reach = reach

    @property
    def tokens(self) -> int:
        """Tokens in the whole text."""
        return self._tokens

    def tokens_of_prefix(self, chars: int) -> int:
        """Exactly `count(text[:chars])`."""
        if chars >= len(self._text):
            return self._tokens
        if chars <= 0:
            return 0
        if self._reach is not None:
            points = stable_points(self._text, chars - self._reach)
            for point, _ in zip(points, range(_TRIES), strict=False):
                before = self._tokens_before(point)
                if before is not None:
                    return before + self._count(self._text[point:chars])
        return self._count(self._text[:chars])

    def _tokens_before(self, char: int) -> int | None:
        """Tokens before a character, or None where no token begins with it."""
        raise NotImplementedError


class ByteMeasured(_Cut):
    """For byte-level tokenisers, whose tokens are consecutive bytes of the text.

    Args:
        text: C characters.
        lengths: T token lengths in UTF-8 bytes, their sum being that of the text.
        count: counts a text by itself.
        reach: see `locality.reach`.
    """

    def __init__(
        self, text: str, lengths: Sequence[int], count: Callable[[str], int], reach: int | None
    ) -> None:
        super().__init__(text, len(lengths), count, reach)
        self._lengths = lengths

    def chars_within(self, limit: int) -> int:
        """Characters of the longest prefix within the first `limit` tokens."""
        if limit >= self._tokens:
            return len(self._text)
        size = sum(self._lengths[: max(limit, 0)])
        if self._text.isascii():
            return size
        # A character that the last token ends inside of is left out.
        return len(self._text.encode()[:size].decode(errors="ignore"))

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(self._lengths))

    def _tokens_before(self, char: int) -> int | None:
        byte = char if self._text.isascii() else len(self._text[:char].encode())
        at = bisect_left(self._ends, byte)
        return at + 1 if self._ends[at] == byte else None


class OffsetMeasured(_Cut):
    """For any tokeniser of the tokenizers library, by the offsets that it reports.

    Args:
        text: C characters.
        encoding: of the text, with offsets in characters of the original text.
        count: counts a text by itself.
        reach: see `locality.reach`.
    """

    def __init__(
        self, text: str, encoding: Encoding, count: Callable[[str], int], reach: int | None
    ) -> None:
        super().__init__(text, len(encoding), count, reach)
        self._encoding = encoding

    def chars_within(self, limit: int) -> int:
        """Characters of the longest prefix within the first `limit` tokens."""
        if limit >= self._tokens:
            return len(self._text)
        if limit <= 0:
            return 0
        # Single lookups: listing all offsets of a chunk costs as much as tokenising a good part of it.
        last, following = self._span(limit - 1), self._span(limit)
        # Tokens that share a character both report all of it; it belongs to the later one.
        return min(last[1], following[0]) if following[1] > following[0] else last[1]

    def _span(self, token: int) -> tuple[int, int]:
        return self._encoding.token_to_chars(token) or (0, 0)

    def _tokens_before(self, char: int) -> int | None:
        token = self._encoding.char_to_token(char)
        return token if token is not None and self._span(token)[0] == char else None
