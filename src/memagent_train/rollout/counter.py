"""Counts what a rollout's model sends: texts with its tokenizer, prompts exactly as sent."""

from collections.abc import Sequence

from memagent.messages import Message, ToolSpec
from memagent.tokens import Measured, TokenizerFile
from memagent_train.rollout.conversations import Conversations


class RolloutCounter:
    """Counts the conversations of one rollout.

    Args:
        texts: counts texts.
        conversations: builds the prompts to count.
    """

    def __init__(self, texts: TokenizerFile, conversations: Conversations) -> None:
        self._texts, self._conversations = texts, conversations
        self.name = texts.name
        self.control_tokens = texts.control_tokens

    def count(self, text: str) -> int:
        """Counts the tokens of `text`."""
        return self._texts.count(text)

    def count_messages(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """Counts the tokens of the prompt that will be sent: exact, even if it continues a conversation.

        Raises:
            TokenizerError: the template rejects the messages, or doesn't show the tools.
        """
        return len(self._conversations.prompt(messages, thinking=thinking, tools=tools).ids)

    def measure(self, text: str) -> Measured:
        """Tokenises `text` once, for cutting."""
        return self._texts.measure(text)
