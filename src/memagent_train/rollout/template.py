"""Converts messages to token ids with the tokenizer's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from memagent.errors import ConfigError, TokenizerError
from memagent.messages import Message
from memagent.texts import repair_surrogates
from memagent.tokens.template import explain_refusal, to_template

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase


class Template:
    """A tokenizer with its chat template.

    Args:
        tokenizer: a fast one (of the `tokenizers` library). A copy is used, so later changes to padding and truncation
            have no effect here.
        chat_template: overrides the tokenizer's.

    Raises:
        ConfigError: there is no chat template, or the tokenizer is a slow one.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, chat_template: str | None = None
    ) -> None:
        from tokenizers import Tokenizer

        self.tokenizer = tokenizer
        self.source = chat_template or tokenizer.chat_template
        """The Jinja template (or several, by name)."""
        if not self.source:
            raise ConfigError(
                f"the tokenizer of {tokenizer.name_or_path!r} has no chat template: give one (chat_template=, or set "
                f"tokenizer.chat_template), or use the model's instruct variant, whose tokenizer has one"
            )
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise ConfigError(
                f"the tokenizer {type(tokenizer).__name__} is a slow one: memagent needs a tokenizer.json; "
                f"convert it (AutoTokenizer.from_pretrained(..., use_fast=True), then save_pretrained)"
            )
        self._backend: Tokenizer = Tokenizer.from_str(backend.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = backend.encode_special_tokens

    def render(self, messages: Sequence[Message], *, thinking: bool | None = None) -> str:
        """The prompt as text, up to where the model's turn begins.

        Raises:
            TokenizerError: the template rejects the messages.
        """
        # Left out if unset: templates check whether it is defined.
        switch: dict[str, Any] = {} if thinking is None else {"enable_thinking": thinking}
        try:
            text = self.tokenizer.apply_chat_template(
                [to_template(message) for message in messages],
                chat_template=self.source if isinstance(self.source, str) else None,
                add_generation_prompt=True,
                tokenize=False,
                **switch,
            )
        except Exception as error:  # jinja2's errors, and whatever a template's own code raises
            raise TokenizerError(explain_refusal(messages, (), error)) from error
        assert isinstance(text, str), "one conversation was rendered, to text"
        return repair_surrogates(text)

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text rendered by the template. Lets other threads run meanwhile."""
        encoded = self._backend.encode_batch_fast([text], add_special_tokens=False)
        return tuple(encoded[0].ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of sampled ids, without special tokens."""
        return self._backend.decode(list(ids), skip_special_tokens=True)
