"""Guesses of replies: a model that keeps its memory as it was says what stands in its prompt, word for word."""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Sequence

KEPT = 256
"""Replies that are remembered: those of four full batches."""

HEAD = 4
"""Ids at its beginning by which a reply is looked for in a prompt."""


class Drafts:
    """Remembers replies, and guesses the next ones: what was said before and stands in the prompt.

    A guess costs little where it is wrong, and changes no reply (see `Verified`).
    """

    def __init__(self) -> None:
        self._replies: OrderedDict[str, None] = OrderedDict()

    def note(self, ids: Sequence[int]) -> None:
        """Remembers a reply, without its end token; an empty one is not remembered."""
        if ids:
            reply = _text(ids)
            self._replies[reply] = None
            self._replies.move_to_end(reply)
            if len(self._replies) > KEPT:
                self._replies.popitem(last=False)

    def guess(self, prompt_ids: Sequence[int], most: int) -> list[int]:
        """The reply with the longest beginning that stands in the prompt, of several the latest; at most `most` ids.

        Empty where there is none. The whole reply is guessed, not only what stands there: one that was cut at its
        limit may read a little differently when it is encoded again.
        """
        prompt = _text(prompt_ids)
        best, found = "", 0
        for reply in reversed(list(self._replies)):
            at = prompt.find(reply[:HEAD])
            if at >= 0 and (long := _common(reply, prompt[at : at + len(reply)])) > found:
                best, found = reply, long
        return [ord(one) for one in best[:most]]


def _text(ids: Sequence[int]) -> str:
    """Ids as a string, which Python searches fast: a character each (a million would fit, vocabularies have less)."""
    return "".join(map(chr, ids))


def _common(first: str, second: str) -> int:
    """Characters that both begin with, found by halving: slices compare fast."""
    return bisect.bisect_left(
        range(min(len(first), len(second))), True, key=lambda n: first[: n + 1] != second[: n + 1]
    )
