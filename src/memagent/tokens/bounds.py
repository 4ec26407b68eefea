"""How long a prompt can be at most where the chat template is not known."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence

from memagent.messages import Message, ToolSpec
from memagent.texts import repair_surrogates
from memagent.tokens.base import (
    CALL_ALLOWANCE,
    MESSAGE_ALLOWANCE,
    REQUEST_ALLOWANCE,
    TOOLS_ALLOWANCE,
)


def byte_count(text: str) -> int:
    """UTF-8 bytes of the text or of its NFC form, whichever are more; U+FFFD's three for a lone surrogate."""
    if text.isascii():
        return len(text)
    text = repair_surrogates(text)
    size = len(text.encode())
    if unicodedata.is_normalized("NFC", text):
        return size
    return max(size, len(unicodedata.normalize("NFC", text).encode()))


def prompt_bound(
    count: Callable[[str], int], messages: Sequence[Message], tools: Sequence[ToolSpec]
) -> int:
    """An upper bound on the tokens of a rendered prompt.

    Contents are counted as texts. Tools and calls are counted as indented JSON, the widest form that templates write
    them in; or in bytes of compact JSON where these are fewer, since white space takes few tokens.

    Args:
        count: tokens of a text.
        messages: the conversation.
        tools: what the model may call.
    """
    bound = REQUEST_ALLOWANCE
    for message in messages:
        bound += count(message.content) + MESSAGE_ALLOWANCE
        for call in message.tool_calls:
            # The arguments as they are sent too: a server may take them for a text.
            texts = (
                _count_json(count, {call.name: call.values()}),
                _count_json(count, call.arguments),
            )
            bound += CALL_ALLOWANCE + byte_count(call.id) + max(texts)
            bound += _count_json(count, call.extra) if call.extra else 0
        bound += byte_count(message.tool_call_id or "")
        bound += _count_json(count, message.extra) if message.extra else 0
    if tools:
        bound += TOOLS_ALLOWANCE + _count_json(count, [tool.to_openai() for tool in tools])
    return bound


def _count_json(count: Callable[[str], int], value: object) -> int:
    wide = json.dumps(value, indent=4, ensure_ascii=False)
    return min(count(wide), byte_count(json.dumps(value, ensure_ascii=False)))
