"""The counter protocol: the length of a text in a model's tokens."""

from collections.abc import Sequence
from typing import Protocol

from memagent.messages import Message, ToolSpec

JOINER = "\u2060"
"""Word joiner, invisible and of zero width: inserted after a text's first character, it keeps a tokenizer from
reading a control token there."""
MESSAGE_ALLOWANCE = 16
"""Tokens allowed for the role markers of one message if the chat template is unknown: ChatML takes 3, Llama 3 7."""
REQUEST_ALLOWANCE = 128
"""Tokens allowed once per request for what an unknown template adds: begin-of-text, the generation prompt and the
default system prompts of Qwen2.5 (21), Llama 3 (25) and gpt-oss (80 to 90, its harmony header), but not those of
Mistral-Small and SmolLM3, which take several hundred. For such a model name its own tokenizer, in a folder with the
chat template, or a correspondingly smaller window than the server's."""
CALL_ALLOWANCE = 48
"""Tokens allowed for the markup of one tool call: Hermes' and Qwen's take 15, DeepSeek's and Qwen3-Coder's 20."""
ARGUMENT_ALLOWANCE = 10
"""Tokens allowed for the markup of one argument of a call: what Qwen3-Coder's takes."""
MEDIA_ALLOWANCE = 2048
"""Tokens allowed for an image, a sound or a file among a message's parts: for an image Claude takes at most 1,600,
GPT-4o 1,445. Qwen2.5-VL takes up to 16,384 by default, but servers lower it for small windows."""
TOOLS_ALLOWANCE = 768
"""Tokens allowed once for an unknown template's instructions about tools: Qwen's takes 110, Llama 3.1's 90,
Qwen3-Coder's and Hermes 3's 300."""


class Measured(Protocol):
    """A text that is tokenised once, as far as needed."""

    @property
    def tokens(self) -> int:
        """Tokens in the whole text."""
        ...

    def chars_within(self, limit: int) -> int:
        """Returns the characters of the longest prefix that ends where one of the first `limit` tokens ends.

        A guide for where to cut: counted by itself, the prefix may differ by a few tokens at the cut;
        `tokens_of_prefix` gives the exact count.
        """
        ...

    def tokens_of_prefix(self, chars: int) -> int:
        """Returns exactly `count(text[:chars])`."""
        ...


class TokenCounter(Protocol):
    """Counts tokens like a particular model. Calls may block (tokenising, a server), so loops make them in threads."""

    @property
    def name(self) -> str:
        """Names the counter in records and binds runs to it: the same name means the same counts."""
        ...

    @property
    def control_tokens(self) -> frozenset[str]:
        """Texts that this tokenizer reads as control tokens."""
        ...

    def count(self, text: str) -> int:
        """Counts the tokens of `text`, without those that a chat template would add."""
        ...

    def count_messages(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """Counts the tokens of a rendered chat prompt: exactly with a known template, else as an upper bound.

        Args:
            messages: the conversation, up to where the model's turn begins.
            thinking: as in `ChatRequest`: templates add text if reasoning is switched off.
            tools: as in `ChatRequest`: templates describe them to the model.

        Raises:
            TokenizerError: the template rejects the messages, or doesn't show the model its tools.
        """
        ...

    def measure(self, text: str) -> Measured:
        """Measures a text, for cutting it."""
        ...
