"""Counts like the server: with a tokenizer on this machine if both agree, else by asking it."""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from pydantic import JsonValue

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ModelNotFound,
    RequestRefused,
    TokenizerError,
)
from memagent.messages import Message, ToolCall, ToolSpec
from memagent.models.dialects import TEMPLATE_KWARGS, merge_fields, write_message
from memagent.texts import repair_surrogates
from memagent.threads import widen
from memagent.tokens.base import Measured, TokenCounter
from memagent.tokens.measured import MeasuredText
from memagent.tokens.template import TEXT_PROTOCOL, describe_unseen

logger = logging.getLogger("memagent")

Ask = Callable[[str, Mapping[str, object]], Mapping[str, JsonValue]]

COUNT_PATH = "/v1/chat/completions/input_tokens"
"""Path at which llama.cpp's server counts a conversation."""
COUNTING_THREADS = 8
"""Worker threads if the server counts: they only wait, and use no core."""
PROBES = (
    "The old prince's house, 1805! 'Tis there; they'll go.\n\n  “Yes,” said Natásha.",
    "日本語と中文，한국어。 naïve café e\u0301 🙂🏽 \u00a0\u200b 12345 1,000.50",
    "def f(x):\n\treturn {'a': x ** 2}  # <|im_start|>user <|\u2060im_end|> [INST] </s> <think>\n",
    " leading and trailing ",
)
"""Texts for comparing a local tokenizer with the server's."""
CONVERSATIONS = (
    (Message(role="user", content="Which year?"),),
    (
        Message(role="user", content="Which year?"),
        Message(role="assistant", content="1805."),
        Message(role="user", content=" And where? "),
    ),
)
"""Conversations for comparing chat templates; without a system message, which some reject."""
TOOLS = (
    ToolSpec(
        name="born",
        description="The year in which <somebody> was born.",
        parameters={
            "type": "object",
            "properties": {"name": {"type": "string"}, "among": {"type": "array", "items": {}}},
            "required": ["name"],
        },
    ),
)


def _turn(name: str, content: str, arguments: str, result: str) -> tuple[Message, Message]:
    call = ToolCall(id=name, name="born", arguments=arguments)
    return (
        Message(role="assistant", content=content, tool_calls=(call,)),
        Message(role="tool", content=result, tool_call_id=name),
    )


TOOL_TALK = (
    Message(role="user", content="When was she born?"),
    *_turn("call00000", "I look.", '{"name":"Nat\\u00e1sha","among":[1, {}]}', "In 1792."),
    *_turn("call00001", "", "", "Error: who?"),
)
"""Conversation for comparing templates with tools; one call at a time, since Llama's support no more."""
_MEMO = 256
"""Number of prompt counts to cache: each prompt is counted twice."""


class ServerCounter:
    """Counts like a server: with a local tokenizer as far as it agrees, else with the server's `/tokenize`.

    Each count by the server is one request, which callers may retry. Both share a name: runs can resume with either.

    `ask` is `Server.ask`, `template` holds the chat request fields that affect the prompt (`chat_template_kwargs`,
    `tools`, ...), `local` is a tokenizer that may be the server's.

    Raises:
        ModelError: here and from each method, if the server can't be asked; a `BadResponse` if it doesn't count.
    """

    exact = True

    def __init__(
        self,
        ask: Ask,
        model: str,
        template: Mapping[str, object],
        local: TokenCounter | None = None,
    ) -> None:
        self._send, self._model, self._template = ask, model, template
        self._cannot_detokenize = False
        self._memo: dict[bytes, int] = {}
        probe_ids = [self._ids(text) for text in PROBES]
        prompts = [self._ask(messages) for messages in CONVERSATIONS]
        if not (all(probe_ids) and all(prompts)):
            raise BadResponse(f"{model}: /tokenize returns no tokens for non-empty texts")
        # Conversations are left out: some templates include the date, and a run may continue tomorrow.
        self.name = f"server:{hashlib.sha256(json.dumps(probe_ids).encode()).hexdigest()[:12]}"
        alike = local is not None and list(map(local.count, PROBES)) == list(map(len, probe_ids))
        self._texts = local if alike else None
        alike = alike and all(
            self._counts_alike(local, messages, thinking=thinking)
            for messages in CONVERSATIONS
            for thinking in (None, False)
        )
        self._messages = local if alike else None
        self._tools: TokenCounter | None = None
        self._tools_compared = False
        self.control_tokens = self._texts.control_tokens if self._texts else frozenset[str]()
        """Empty without a local tokenizer: the common forms are neutralised anyway."""
        if self._messages is None:
            widen(COUNTING_THREADS)

    @property
    def who(self) -> str:
        """Who counts: `tokenizer`, `server`, or `both` (texts here, conversations there)."""
        if self._texts is None:
            return "server"
        return "both" if self._messages is None else "tokenizer"

    def count(self, text: str) -> int:
        """Counts the tokens of `text`."""
        return len(self._ids(text)) if self._texts is None else self._texts.count(text)

    def count_messages(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """Counts the tokens of the server's prompt. Raises a `TokenizerError` if its template lacks tools."""
        texts = repr((thinking, *messages, *tools)).encode()
        key = hashlib.blake2b(texts, digest_size=16).digest()
        if (count := self._memo.get(key)) is None:
            with_tools = tools or any(m.role == "tool" or m.tool_calls for m in messages)
            local = self._find_tools_counter() if with_tools else self._messages
            if local is None:
                count = self._ask(messages, thinking=thinking, tools=tools)
            else:
                count = local.count_messages(messages, thinking=thinking, tools=tools)
            for oldest in [*self._memo][: 1 - _MEMO]:
                self._memo.pop(oldest, None)
            self._memo[key] = count
        return count

    def measure(self, text: str) -> Measured:
        """Tokenises `text` once; if the server counts, prefixes are tokenised on demand."""
        if self._texts is not None:
            return self._texts.measure(text)
        return MeasuredText(repair_surrogates(text), self._ids, self._cut, local=False)

    def distrust(self) -> bool:
        """Switches to the server's counts; returns False if that was done before."""
        if self._texts is None:
            return False
        self._texts = self._messages = self._tools = None
        self._memo.clear()
        widen(COUNTING_THREADS)
        return True

    def text(self, ids: Sequence[int]) -> str | None:
        """Returns the text of token ids; None if the server can't tell: a gateway may expose only `/tokenize`."""
        if self._cannot_detokenize:
            return None
        # SGLang drops control tokens unless told not to; vLLM never does.
        body = {"model": self._model, "tokens": list(ids), "skip_special_tokens": False}
        try:
            reply = self._send("/detokenize", body)
        except (AuthenticationFailed, ModelNotFound, RequestRefused) as error:
            logger.info("%s: cuts are estimated and recounted: %s", self._model, error)
            self._cannot_detokenize = True
            return None
        for key in ("prompt", "text", "content"):
            if isinstance(text := reply.get(key), str):
                return text
        raise BadResponse(f"{self._model}: no text in the reply to /detokenize")

    def _cut(self, text: str, ids: list[int], limit: int) -> int:
        """Counts the characters of the first `limit` tokens' text."""
        guess = len(text) * limit // len(ids)
        head = self.text(ids[:limit])
        if head is None:
            return guess
        if not text.startswith(head):
            # A character cut by the last token comes back as U+FFFD.
            head = head.rstrip("\ufffd")
        if text.startswith(head):
            return len(head)
        # The tokenizer normalises: the position is a guess, corrected by counting the prefix.
        return min(len(head), guess)

    def _counts_alike(
        self, local: TokenCounter | None, messages: Sequence[Message], **how: Any
    ) -> bool:
        server_count = self._ask(messages, **how)
        try:
            return local is not None and local.count_messages(messages, **how) == server_count
        except TokenizerError:  # the server has another template
            return False

    def _find_tools_counter(self) -> TokenCounter | None:
        """Finds who counts conversations with tools, None for the server. Done on first use: most runs lack tools."""
        if not self._tools_compared:
            try:
                tools_count = self._ask(TOOL_TALK[:1], tools=TOOLS)
                alike = self._counts_alike(self._messages, TOOL_TALK, tools=TOOLS)
            except RequestRefused as error:
                raise TokenizerError(
                    f"the server's chat template rejects tools: {error}; {TEXT_PROTOCOL}"
                ) from error
            if tools_count == self._ask(TOOL_TALK[:1]):
                raise TokenizerError(describe_unseen(TOOLS))
            self._tools = self._messages if alike else None
            self._tools_compared = True
            if not alike:
                widen(COUNTING_THREADS)
        return self._tools

    def _ids(self, text: str) -> list[int]:
        """Returns the token ids of a text by itself."""
        if not text:
            return []
        return self._tokenize({"prompt": repair_surrogates(text), "add_special_tokens": False})

    def _ask(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """Asks the server for the tokens of its prompt for the messages."""
        fields: dict[str, object] = {
            "messages": [write_message(message) for message in messages],
            "add_generation_prompt": True,
        }
        if tools:
            fields["tools"] = [tool.to_openai() for tool in tools]
        if thinking is not None:
            fields[TEMPLATE_KWARGS] = {"enable_thinking": thinking}
        return self._count(merge_fields(fields, self._template))

    def _count(self, fields: Mapping[str, object]) -> int:
        return len(self._tokenize(fields))

    def _tokenize(self, fields: Mapping[str, object]) -> list[int]:
        reply = self._send("/tokenize", {"model": self._model, **fields})
        ids = reply.get("tokens")
        if not isinstance(ids, list) or not all(type(item) is int for item in ids):
            raise BadResponse(f"{self._model}: no token ids in the reply to /tokenize")
        return cast("list[int]", ids)


class LlamaCounter(ServerCounter):
    """Counts like llama.cpp's server, which has a separate route for conversations."""

    def _ids(self, text: str) -> list[int]:
        return self._tokenize({"content": repair_surrogates(text)}) if text else []

    def _count(self, fields: Mapping[str, object]) -> int:
        reply = self._send(COUNT_PATH, {"model": self._model, **fields})
        count = reply.get("input_tokens")
        if type(count) is not int:
            raise BadResponse(f"{self._model}: no input_tokens in the reply to {COUNT_PATH}")
        return count
