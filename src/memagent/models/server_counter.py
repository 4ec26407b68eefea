"""Counting as the server counts: its own tokenizer and chat template, asked over the network."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from pydantic import JsonValue

from memagent.errors import AuthenticationFailed, BadResponse, ModelNotFound, RequestRefused
from memagent.messages import Message, ToolSpec
from memagent.models.openai_request import sent
from memagent.texts import repair_surrogates
from memagent.tokens.base import Measured

logger = logging.getLogger("memagent")

Ask = Callable[[str, Mapping[str, object]], Mapping[str, JsonValue]]

PROBES = (
    "The old prince's house, 1805! 'Tis there; they'll go.\n\n  “Yes,” said Natásha.",
    "日本語と中文，한국어。 naïve café e\u0301 🙂🏽 \u00a0\u200b 12345 1,000.50",
    "def f(x):\n\treturn {'a': x ** 2}  # <|im_start|>user <|\u2060im_end|> [INST] </s> <think>\n",
    " leading and trailing ",
)
"""Texts by which a tokenizer at hand is compared with the server's."""
CONVERSATIONS = (
    (Message(role="user", content="Which year?"),),
    (
        Message(role="user", content="Which year?"),
        Message(role="assistant", content="1805."),
        Message(role="user", content=" And where? "),
    ),
)
"""Conversations by which chat templates are compared; without a system message, which some refuse."""


class ServerCounter:
    """Counts with a server's `/tokenize`. Each count is a request, sent once; who counts may send it again.

    Args:
        ask: sends a request to a path of the server (`Server.ask`).
        model: the name under which the server serves the model.
        template: what chat requests say of the prompt (`chat_template_kwargs`, `tools`, ...).

    Raises:
        ModelError: here and from each of the methods, where the server cannot be asked; `BadResponse` where it
            answers and does not count.
    """

    control_tokens: frozenset[str] = frozenset()
    """Not known: the forms that are in use are made harmless all the same."""

    def __init__(self, ask: Ask, model: str, template: Mapping[str, object]) -> None:
        self._send = ask
        self._model = model
        self._template = dict(template)
        self._mute = False
        seen = [self.ids(text) for text in PROBES]
        short = [len(self.rendered(messages)) for messages in CONVERSATIONS]
        if not (all(seen) and all(short)):
            raise BadResponse(f"{model}: /tokenize finds no tokens in texts that have some")
        # Not of the conversations: some templates write the date, and a run may go on tomorrow.
        self.name = f"server:{hashlib.sha256(json.dumps(seen).encode()).hexdigest()[:12]}"

    def count(self, text: str) -> int:
        """Tokens of `text`."""
        return len(self.ids(text))

    def count_messages(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """Tokens of the prompt that the server would make of the messages."""
        return len(self.rendered(messages, thinking=thinking, tools=tools))

    def measure(self, text: str) -> Measured:
        """Tokenises `text` once; its prefixes are tokenised when they are asked for."""
        text = repair_surrogates(text)
        return _ServerMeasured(text, self.ids(text), self)

    def ids(self, text: str) -> list[int]:
        """Token ids of a text by itself."""
        if not text:
            return []
        return self._tokens({"prompt": repair_surrogates(text), "add_special_tokens": False})

    def rendered(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> list[int]:
        """Token ids of the prompt that the server would make of the messages."""
        fields: dict[str, object] = {
            "messages": [sent(message) for message in messages],
            "add_generation_prompt": True,
        }
        if tools:
            fields["tools"] = [tool.to_openai() for tool in tools]
        fields |= self._template
        if thinking is not None:
            switch = {"enable_thinking": thinking}
            own = self._template.get("chat_template_kwargs")
            fields["chat_template_kwargs"] = switch | (own if isinstance(own, dict) else {})
        return self._tokens(fields)

    def text(self, ids: Sequence[int]) -> str | None:
        """The text of token ids, None where the server does not say: a gateway may let `/tokenize` through alone."""
        if self._mute:
            return None
        # SGLang leaves control tokens out unless it is told not to; vLLM never does.
        asked = {"model": self._model, "tokens": list(ids), "skip_special_tokens": False}
        try:
            reply = self._send("/detokenize", asked)
        except (AuthenticationFailed, ModelNotFound, RequestRefused) as error:
            logger.info("%s: cuts are guessed and counted again: %s", self._model, error)
            self._mute = True
            return None
        for key in ("prompt", "text"):
            if isinstance(text := reply.get(key), str):
                return text
        raise BadResponse(f"{self._model}: no text in the reply to /detokenize")

    def _tokens(self, fields: Mapping[str, object]) -> list[int]:
        reply = self._send("/tokenize", {"model": self._model, **fields})
        ids = reply.get("tokens")
        if not isinstance(ids, list) or not all(type(item) is int for item in ids):
            raise BadResponse(f"{self._model}: no token ids in the reply to /tokenize")
        return cast("list[int]", ids)


class _ServerMeasured:
    """A text whose tokens the server knows."""

    def __init__(self, text: str, ids: Sequence[int], counter: ServerCounter) -> None:
        self._text, self._ids, self._counter = text, ids, counter
        self.tokens = len(ids)

    def chars_within(self, limit: int) -> int:
        """Characters of the text of the first `limit` tokens."""
        if limit >= self.tokens:
            return len(self._text)
        if limit <= 0:
            return 0
        guess = len(self._text) * limit // self.tokens
        head = self._counter.text(self._ids[:limit])
        if head is None:
            return guess
        if not self._text.startswith(head):
            # A character that the last token ends inside of comes back as U+FFFD.
            head = head.rstrip("\ufffd")
        if self._text.startswith(head):
            return len(head)
        # The tokenizer normalises: the place is a guess, which the count of the prefix puts right.
        return min(len(head), guess)

    def tokens_of_prefix(self, chars: int) -> int:
        """Exactly `count(text[:chars])`."""
        if chars >= len(self._text):
            return self.tokens
        return self._counter.count(self._text[: max(chars, 0)])
