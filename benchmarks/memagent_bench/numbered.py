"""A numbered list: its tokens, and its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from memagent.tokens import TokenCounter

_BLOCK = 256
"""Numbers counted at a time."""
_WORD = "\0"


class Numbered:
    """Items such as `1. word`, with a separator.

    Args:
        item: formats one item from its number and its text.
        between: the separator of two items.
        counter: the counter of lengths.
    """

    def __init__(
        self, item: Callable[[int, str], str], between: str, counter: TokenCounter
    ) -> None:
        self.item, self._between, self._count = item, between, counter.count
        self._one = self.cost("word")
        self._sums = [0]
        """Tokens that the numbers of the first i blocks take beyond as many ones."""
        self._glue: list[str] = []
        """The text before each word."""

    def cost(self, text: str) -> int:
        """Returns the tokens of one more item, if its number is 1."""
        return self._count(self._between + self.item(1, text))

    def more(self, n: int) -> int:
        """Returns the tokens that the numbers 1 to n take beyond n times the number 1."""
        blocks, remainder = divmod(n, _BLOCK)
        while len(self._sums) <= blocks:
            start = (len(self._sums) - 1) * _BLOCK
            self._sums.append(self._sums[-1] + self._extra(start, start + _BLOCK))
        return self._sums[blocks] + self._extra(n - remainder, n)

    def text(self, words: NDArray[Any]) -> str:
        """Returns the list of these words (an array of str)."""
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
