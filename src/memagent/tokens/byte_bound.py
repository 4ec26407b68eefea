"""The counter for when no tokenizer can be had: UTF-8 bytes, an upper bound for byte-level tokenizers."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from memagent.messages import Message, ToolSpec
from memagent.texts import repair_surrogates
from memagent.tokens.bounds import byte_count, prompt_bound


class ByteBound:
    """Counts UTF-8 bytes: those of the text or those of its NFC form, whichever are more.

    No tokenizer that spells text in bytes or larger units takes more tokens than that, whether it
    normalises to NFC first (Qwen does, and a few characters grow threefold by it) or not at all. For those
    that normalise to NFKC or NFD it is no bound. It is far above the truth, about four times for English, so
    runs that count with it make about four times the calls; whoever chooses it for a user says so.
    """

    name = "utf8-bytes"
    control_tokens: frozenset[str] = frozenset()

    def count(self, text: str) -> int:
        """Bytes of `text`; a lone surrogate counts as the three bytes of U+FFFD."""
        return byte_count(text)

    def count_messages(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """Bytes of the contents, plus the allowances for a chat template that is not known."""
        return prompt_bound(self.count, messages, tools)

    def measure(self, text: str) -> BytesMeasured:
        """The text's bytes, for cutting."""
        return BytesMeasured(text, self)


class BytesMeasured:
    """A text whose tokens are its UTF-8 bytes."""

    def __init__(self, text: str, counter: ByteBound) -> None:
        self._text = repair_surrogates(text)
        self._counter = counter
        self.tokens = counter.count(text)

    def chars_within(self, limit: int) -> int:
        """Characters of the longest prefix of at most `limit` bytes.

        Where the text is not in NFC, its characters are counted one by one: the prefix may then have
        fewer bytes, and hardly ever more.
        """
        if limit >= self.tokens:
            return len(self._text)
        limit = max(limit, 0)
        if unicodedata.is_normalized("NFC", self._text):
            return len(self._text[:limit].encode()[:limit].decode(errors="ignore"))
        return bisect_right(self._ends, limit)

    def tokens_of_prefix(self, chars: int) -> int:
        """Exactly `count(text[:chars])`."""
        return self._counter.count(self._text[: max(chars, 0)])

    @cached_property
    def _ends(self) -> list[int]:
        sizes = {char: self._counter.count(char) for char in set(self._text)}
        return list(accumulate(map(sizes.__getitem__, self._text)))
