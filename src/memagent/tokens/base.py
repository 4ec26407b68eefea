"""The counter protocol: how long a text is, in a model's tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from memagent.messages import Message

MESSAGE_ALLOWANCE = 16
"""Tokens allowed for the role markers of one message where the chat template is unknown.

Known templates take 3 (ChatML) to 7 (Llama 3).
"""
REQUEST_ALLOWANCE = 48
"""Tokens allowed once a request for what an unknown template adds by itself.

Default system prompts (Qwen2.5: 21, Llama 3: 25), begin-of-text and the generation prompt.
"""


class Measured(Protocol):
    """A text that was tokenised once."""

    @property
    def tokens(self) -> int:
        """Tokens in the whole text."""
        ...

    def chars_within(self, limit: int) -> int:
        """Characters of the longest prefix that ends where one of the first `limit` tokens ends.

        A guide for where to cut: the prefix counted by itself may differ by a few tokens at the cut,
        which is what `tokens_of_prefix` tells.
        """
        ...

    def tokens_of_prefix(self, chars: int) -> int:
        """Exactly `count(text[:chars])`."""
        ...


class TokenCounter(Protocol):
    """Counts tokens as one model does. Calls may block (tokenising, a server), so loops make them in threads."""

    @property
    def name(self) -> str:
        """Names the counter in records and binds runs to it: the same name means the same counts."""
        ...

    @property
    def exact(self) -> bool:
        """False where counts are upper bounds rather than the model's own tokens."""
        ...

    @property
    def control_tokens(self) -> frozenset[str]:
        """Texts that this tokenizer would read as control tokens."""
        ...

    def count(self, text: str) -> int:
        """Tokens of `text`, without any that a chat template would add."""
        ...

    def count_messages(self, messages: Sequence[Message]) -> int:
        """Tokens of a rendered chat prompt: exact with a known template, else an upper bound."""
        ...

    def measure(self, text: str) -> Measured:
        """Tokenises `text` once, for cutting."""
        ...
