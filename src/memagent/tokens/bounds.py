"""How long a prompt can be at most where the chat template is not known."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Sequence

from memagent.messages import Message, ToolSpec
from memagent.texts import repair_surrogates
from memagent.tokens.base import (
    ARGUMENT_ALLOWANCE,
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
    them in; or as compact JSON and two tokens for each line end with its indentation, where that is less.

    Args:
        count: tokens of a text.
        messages: the conversation.
        tools: what the model may call.
    """
    bound = REQUEST_ALLOWANCE
    for message in messages:
        bound += count(message.content) + MESSAGE_ALLOWANCE
        for call in message.tool_calls:
            values = call.values()
            # The arguments as they are sent too: a server may take them for a text.
            forms = ({call.name: values}, {call.name: call.arguments})
            bound += CALL_ALLOWANCE + ARGUMENT_ALLOWANCE * len(values) + byte_count(call.id)
            bound += max(_count_json(count, form) for form in forms)
            bound += _count_json(count, call.extra) if call.extra else 0
        bound += byte_count(message.tool_call_id or "")
        bound += _count_json(count, message.extra) if message.extra else 0
    if tools:
        bound += TOOLS_ALLOWANCE + _count_json(count, [tool.to_openai() for tool in tools])
    return bound


def _count_json(count: Callable[[str], int], value: object) -> int:
    wide, compact = (json.dumps(value, indent=indent, ensure_ascii=False) for indent in (4, None))
    # Bytes pay for the white space: three or four of them make a token.
    return min(count(wide), byte_count(compact), count(compact) + 2 * wide.count("\n"))
