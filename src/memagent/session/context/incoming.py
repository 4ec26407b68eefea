"""What comes into a session: messages are read, and what would be read as a control token is made harmless."""

from __future__ import annotations

import json
from typing import Any

from memagent.messages import Message, ToolCall
from memagent.prompts import Neutraliser
from memagent.session.context.layout import Layout
from memagent.texts import map_texts, repair_surrogates


def neutralise(layout: Layout, message: Message) -> Message:
    """The message as it is safe to show; itself where it is safe already. Blocks.

    Results may hold neither control tokens nor the prompt's tags. What the model and the user say may hold tags, since
    these are theirs to write: in the text protocol a call is one.
    """
    neutraliser = layout.neutraliser if message.role == "tool" else layout.spoken
    calls = tuple(_call(layout.spoken, call) for call in message.tool_calls)
    fields: dict[str, Any] = {
        "content": neutraliser.safe(message.content),
        "tool_calls": calls,
        "extra": map_texts(dict(message.extra), layout.spoken.safe),
    }
    if message.tool_call_id is not None:  # as the call's id
        fields["tool_call_id"] = layout.spoken.safe(message.tool_call_id)
    return message.model_copy(update=fields)


def neutralise_arguments(neutraliser: Neutraliser, text: str) -> str:
    """Arguments without control tokens and half surrogate pairs: JSON stays JSON, of the same form but for those.

    Templates may write the values instead of the JSON, so an escaped `<` is looked at as one.
    """
    try:
        value = json.loads(text)
        safe = map_texts(value, lambda part: neutraliser.safe(repair_surrogates(part)))
        if safe != value:
            text = json.dumps(safe, ensure_ascii=False)
    except (ValueError, RecursionError):
        return neutraliser.safe(text)
    whole = neutraliser.safe(text)  # a look-alike may begin in one text and end in the next
    if whole == text:
        return text
    try:
        json.loads(whole)
    except (ValueError, RecursionError):
        return text
    return whole


def _call(neutraliser: Neutraliser, call: ToolCall) -> ToolCall:
    fields = {
        "id": neutraliser.safe(call.id),
        "name": neutraliser.safe(call.name),
        "arguments": neutralise_arguments(neutraliser, call.arguments),
        "extra": map_texts(dict(call.extra), neutraliser.safe),
    }
    return call.model_copy(update=fields)
