"""Converts messages to token ids with the tokenizer's chat template."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from trl.chat_template_utils import add_response_schema, parse_response

from memagent.errors import ConfigError
from memagent.messages import Message, ToolCall, ToolSpec
from memagent.texts import repair_surrogates
from memagent.tokens.template import ChatTemplate
from memagent.tools.protocol import read_calls
from memagent_engines.transformers.loading import slow_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

TOOL_CALL = "<tool_call>"
"""Tag of Hermes' and Qwen's calls, which many other templates use."""


class Template:
    """A tokenizer with its chat template.

    Args:
        tokenizer: a fast one (of the `tokenizers` library). A copy is used, so later changes to padding and truncation
            have no effect here.
        chat_template: overrides the tokenizer's template.

    Raises:
        ConfigError: there is no chat template, or the tokenizer is a slow one.
        TokenizerError: the chat template does not parse.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, chat_template: str | None = None
    ) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = tokenizer
        template: object = chat_template or tokenizer.chat_template
        named: dict[str, Any] = template if isinstance(template, dict) else {"default": template}
        source, with_tools = named.get("default"), named.get("tool_use")
        if not source:
            raise ConfigError(
                f"the tokenizer of {tokenizer.name_or_path!r} has no chat template: give one (chat_template=, or set "
                f"tokenizer.chat_template), or use the model's instruct variant, whose tokenizer has one"
            )
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise slow_tokenizer(tokenizer)
        self._template = ChatTemplate(source, tokenizer.special_tokens_map, with_tools)
        self._backend: Tokenizer = Tokenizer.from_str(backend.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = backend.encode_special_tokens

    def render(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> str:
        """Renders the prompt as text, up to where the model's turn begins.

        Raises:
            TokenizerError: the template rejects the messages, or doesn't show the tools.
        """
        return repair_surrogates(self._template.render(messages, thinking=thinking, tools=tools))

    def encode(self, text: str) -> tuple[int, ...]:
        """Encodes a text rendered by the template. Lets other threads run meanwhile."""
        encoded = self._backend.encode_batch_fast([text], add_special_tokens=False)
        return tuple(encoded[0].ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Decodes sampled ids, without special tokens."""
        return self._backend.decode(list(ids), skip_special_tokens=True)

    def read_calls(
        self, ids: Sequence[int], tools: Sequence[ToolSpec], *, prompt: Sequence[int]
    ) -> tuple[str, tuple[ToolCall, ...]]:
        """Parses the text of sampled ids, and the calls in it, as a server's parser would.

        TRL parses the calls if it knows the template; else memagent parses calls in `<tool_call>` tags. A
        malformed call stays text.

        Args:
            ids: ids of a reply.
            tools: tools offered in the prompt.
            prompt: ids of the prompt: some templates begin the reply there (an opening `<think>`).

        Returns:
            The text around the calls, and the calls, with ids by position.

        Raises:
            ConfigError: it isn't known how the template's calls are written.
        """
        if self._parsing is not None:
            parsed = Message.from_openai(parse_response(self._parsing, list(ids), list(prompt)))
            return parsed.content, parsed.tool_calls
        if TOOL_CALL not in self._written_with_tools:
            raise ConfigError(
                f"it is not known how the chat template of {self.tokenizer.name_or_path!r} writes tool calls: use "
                f"protocol = 'text' or 'compact'"
            )
        text, calls, problem = read_calls(self.decode(ids), [tool.name for tool in tools])
        return (self.decode(ids), ()) if problem else (text, calls)

    @property
    def _written_with_tools(self) -> str:
        return self._template.tool_source or self._template.source

    @cached_property
    def _parsing(self) -> PreTrainedTokenizerBase | None:
        """A tokenizer that parses replies; None if TRL doesn't know the template."""
        other = copy.copy(self.tokenizer)  # a copy, or the parser would be saved with the policy
        other.chat_template = self._written_with_tools
        try:
            return add_response_schema(other)
        except ValueError:
            return None
