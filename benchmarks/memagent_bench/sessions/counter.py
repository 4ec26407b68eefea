"""Counts prompts without a server, in the form of a common chat template: ChatML, with Hermes' form of calls."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

from memagent.messages import Message, ToolCall, ToolSpec
from memagent.tokens import TokenCounter
from memagent.tokens.base import Measured
from memagent.tools.protocol import describe

CONTROL = frozenset({"<|im_start|>", "<|im_end|>"})
MARKS = 2
"""Tokens around a message, a call or a result; each mark is a single token, as in Qwen's vocabulary."""
TOOLS_TEXT = 110
"""Tokens of the tool instructions in Qwen's template, apart from the tools themselves (see `memagent.tokens.base`)."""
REMEMBERED = 2**16
"""Messages whose counts are cached: in a session each is counted again with every later call."""


class ChatCounter:
    """The exact tokens of a ChatML prompt, with another counter's tokens for the text.

    No token spans a mark, so a prompt is the sum of its messages, and in a long history only what is new must be
    counted.

    Args:
        text: counts the text between the marks.
    """

    def __init__(self, text: TokenCounter) -> None:
        self._text = text
        self.name = f"chatml:{text.name}"
        self.control_tokens = text.control_tokens | CONTROL
        self._message = lru_cache(REMEMBERED)(self._count_message)
        self._tools = lru_cache(64)(self._count_tools)
        self._turn = 1 + text.count("assistant\n")

    def count(self, text: str) -> int:
        """Counts the tokens of a text by itself."""
        return self._text.count(text)

    def count_messages(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """Counts the tokens of the prompt up to the start of the model's turn. `thinking` makes no difference."""
        tokens = sum(
            self._message(m.role, m.content, m.tool_calls, m.tool_call_id is not None)
            for m in messages
        )
        return tokens + self._turn + (self._tools(describe(tools)) if tools else 0)

    def measure(self, text: str) -> Measured:
        """Measures as the text's counter does."""
        return self._text.measure(text)

    def _count_message(
        self, role: str, content: str, calls: tuple[ToolCall, ...], result: bool
    ) -> int:
        written = f"{role}\n{content}\n" if not result else f"user\n\n{content}\n\n"
        marks = MARKS * (1 + result + len(calls))
        texts = (f'\n{{"name": {json.dumps(c.name)}, "arguments": {c.arguments}}}\n' for c in calls)
        return self._text.count(written) + marks + sum(map(self._text.count, texts))

    def _count_tools(self, described: str) -> int:
        return TOOLS_TEXT + self._text.count(described)
