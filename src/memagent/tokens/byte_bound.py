"""The counter for when no tokenizer can be had: UTF-8 bytes, an upper bound for byte-level tokenizers."""

from __future__ import annotations

from collections.abc import Sequence

from memagent.messages import Message
from memagent.tokens.base import MESSAGE_ALLOWANCE, REQUEST_ALLOWANCE
from memagent.tokens.measured import well_formed


class ByteBound:
    """Counts UTF-8 bytes.

    No tokenizer that spells text in bytes or larger units takes more tokens than that. It is far above
    the truth, about four times for English, so runs that count with it make about four times the calls;
    whoever chooses it for a user says so.
    """

    name = "utf8-bytes"
    exact = False
    control_tokens: frozenset[str] = frozenset()

    def count(self, text: str) -> int:
        """Bytes of `text`; a lone surrogate counts as the three bytes of U+FFFD."""
        return len(text) if text.isascii() else len(well_formed(text).encode())

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Bytes of the contents, plus the allowances for a chat template that is not known."""
        contents = sum(self.count(message.content) + MESSAGE_ALLOWANCE for message in messages)
        return contents + REQUEST_ALLOWANCE

    def measure(self, text: str) -> BytesMeasured:
        """The text's bytes, for cutting."""
        return BytesMeasured(text, self)


class BytesMeasured:
    """A text whose tokens are its UTF-8 bytes."""

    def __init__(self, text: str, counter: ByteBound) -> None:
        self._text = well_formed(text)
        self._counter = counter
        self.tokens = counter.count(text)

    def chars_within(self, limit: int) -> int:
        """Characters of the longest prefix of at most `limit` bytes."""
        if limit >= self.tokens:
            return len(self._text)
        limit = max(limit, 0)
        return len(self._text[:limit].encode()[:limit].decode(errors="ignore"))

    def tokens_of_prefix(self, chars: int) -> int:
        """Exactly `count(text[:chars])`."""
        return self._counter.count(self._text[: max(chars, 0)])
