"""A numbered list: what its items take, and its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from memagent.tokens import TokenCounter

_BLOCK = 256
"""Numbers counted at a time."""
_WORD = "\0"


class Numbered:
    """Items such as `1. word`, with something between them.

    Args:
        item: one item, of its number and its text.
        between: what parts two items.
        counter: by which lengths are named.
    """

    def __init__(
        self, item: Callable[[int, str], str], between: str, counter: TokenCounter
    ) -> None:
        self.item, self._between, self._count = item, between, counter.count
        self._one = self.cost("word")
        self._sums = [0]
        """Tokens that the numbers of the first i blocks take on top of as many ones."""
        self._glue: list[str] = []
        """What stands before each word."""

    def cost(self, text: str) -> int:
        """Tokens of one item more, if its number is 1."""
        return self._count(self._between + self.item(1, text))

    def more(self, n: int) -> int:
        """Tokens that the numbers 1 to n take on top of n times the number 1."""
        blocks, remainder = divmod(n, _BLOCK)
        while len(self._sums) <= blocks:
            start = (len(self._sums) - 1) * _BLOCK
            self._sums.append(self._sums[-1] + self._extra(start, start + _BLOCK))
        return self._sums[blocks] + self._extra(n - remainder, n)

    def text(self, words: NDArray[Any]) -> str:
        """The list of these words (an array of str)."""
        if not len(words):
            return ""
        _, end = self.item(len(words), _WORD).split(_WORD)
        pieces = [end] * (2 * len(words) + 1)
        pieces[:-1:2] = self._before(len(words))
        pieces[1::2] = words.tolist()
        return "".join(pieces)

    def _extra(self, start: int, stop: int) -> int:
        items = (self._between + self.item(rank, "word") for rank in range(start + 1, stop + 1))
        return self._count("".join(items)) - (stop - start) * self._one

    def _before(self, n: int) -> list[str]:
        for rank in range(len(self._glue) + 1, n + 1):
            start, _ = self.item(rank, _WORD).split(_WORD)
            if rank > 1:
                _, end = self.item(rank - 1, _WORD).split(_WORD)
                start = end + self._between + start
            self._glue.append(start)
        return self._glue[:n]
