"""A tokenizer on this machine in the place of the server's, where both count alike."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from memagent.errors import RequestRefused, TokenizerError
from memagent.messages import Message, ToolCall, ToolSpec
from memagent.models.openai_request import identity
from memagent.models.server_counter import CONVERSATIONS, PROBES, ServerCounter
from memagent.threads import widen
from memagent.tokens.base import Measured, TokenCounter
from memagent.tokens.template import TEXT_PROTOCOL, unseen

COUNTING_THREADS = 8
"""Worker threads where the server counts: they wait for it and use no core."""
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


def _turn(name: str, said: str, arguments: str, result: str) -> tuple[Message, Message]:
    call = ToolCall(id=name, name="born", arguments=arguments)
    return (
        Message(role="assistant", content=said, tool_calls=(call,)),
        Message(role="tool", content=result, tool_call_id=name),
    )


TOOL_TALK = (
    Message(role="user", content="When was she born?"),
    *_turn("call00000", "I look.", '{"name":"Nat\\u00e1sha","among":[1, {}]}', "In 1792."),
    *_turn("call00001", "", "", "Error: who?"),
)
"""A conversation by which chat templates are compared, with one call at a time: Llama's know no others."""
_MEMO = 256


class CheckedCounter:
    """A tokenizer at hand that was compared with the server's, which counts what the first cannot.

    Its name is the server's, whoever counts: they count alike, and a run goes on with either.
    """

    exact = True

    def __init__(self, texts: TokenCounter, messages: TokenCounter, server: ServerCounter) -> None:
        self._texts, self._messages, self._server = texts, messages, server
        self._tool_talk: TokenCounter | None = None
        asks = [isinstance(counter, ServerCounter) for counter in (texts, messages)]
        self.asks = any(asks)
        """Whether counting takes requests."""
        self.who = "server" if all(asks) else "both" if any(asks) else "tokenizer"
        """Who counts."""
        self.name = server.name
        self.control_tokens = texts.control_tokens
        self._memo: dict[bytes, int] = {}

    def count(self, text: str) -> int:
        """Tokens of `text`."""
        return self._texts.count(text)

    def count_messages(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """Tokens of the rendered prompt. The latest counts are remembered: each prompt is looked at twice.

        Raises:
            TokenizerError: the model's chat template knows nothing of tools.
        """
        key = _key(messages, thinking, tools)
        found = self._memo.get(key)
        if found is None:
            with_tools = tools or any(m.role == "tool" or m.tool_calls for m in messages)
            counter = self._for_tools() if with_tools else self._messages
            found = counter.count_messages(messages, thinking=thinking, tools=tools)
            if len(self._memo) >= _MEMO:
                self._memo.clear()
            self._memo[key] = found
        return found

    def recall(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int | None:
        """What `count_messages` said lately, None where it would have to count. Does not block."""
        return self._memo.get(_key(messages, thinking, tools))

    def distrust(self) -> bool:
        """Lets the server count from now on; False where it did so already."""
        if self._texts is self._server and self._messages is self._server:
            return False
        self._texts = self._messages = self._tool_talk = self._server
        self.asks, self.who = True, "server"
        self._memo.clear()
        return True

    def measure(self, text: str) -> Measured:
        """Tokenises `text` once, for cutting."""
        return self._texts.measure(text)

    def _for_tools(self) -> TokenCounter:
        """Who counts conversations with tools. Found when the first of them comes: most runs have none."""
        if self._tool_talk is None:
            self._tool_talk = self._compared()
            if isinstance(self._tool_talk, ServerCounter):
                widen(COUNTING_THREADS)
        return self._tool_talk

    def _compared(self) -> TokenCounter:
        server = self._server
        try:
            asked = server.count_messages(TOOL_TALK[:1], tools=TOOLS)
            counted = server.count_messages(TOOL_TALK, tools=TOOLS)
        except RequestRefused as error:
            raise TokenizerError(
                f"the server's chat template refuses tools: {error}; {TEXT_PROTOCOL}"
            ) from error
        if asked == server.count_messages(TOOL_TALK[:1]):
            raise TokenizerError(unseen(TOOLS))
        try:
            same = self._messages.count_messages(TOOL_TALK, tools=TOOLS) == counted
        except TokenizerError:  # the server has another template
            same = False
        return self._messages if same else server


def _key(messages: Sequence[Message], thinking: bool | None, tools: Sequence[ToolSpec]) -> bytes:
    digest = hashlib.blake2b(repr(thinking).encode(), digest_size=16)
    for message in messages:
        digest.update(identity(message))
    for tool in tools:
        digest.update(repr(tool).encode("utf-8", "surrogatepass"))
    return digest.digest()


def checked(local: TokenCounter | None, remote: ServerCounter) -> tuple[CheckedCounter, bool]:
    """The fastest counter that counts as the server does, and whether the tokenizer at hand is the server's."""
    if local is None:
        return CheckedCounter(remote, remote, remote), False
    if any(local.count(text) != len(remote.ids(text)) for text in PROBES):
        return CheckedCounter(remote, remote, remote), False
    same = all(
        local.count_messages(messages, thinking=thinking)
        == remote.count_messages(messages, thinking=thinking)
        for messages in CONVERSATIONS
        for thinking in (None, False)
    )
    return CheckedCounter(local, local if same else remote, remote), True
