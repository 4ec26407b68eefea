"""What comes into a session: messages are read, and what would be read as a control token is made harmless."""

from __future__ import annotations

import json

from memagent.messages import Message
from memagent.prompts import Neutraliser
from memagent.session.context.layout import Layout
from memagent.texts import map_texts, repair_surrogates


def neutralise(layout: Layout, message: Message) -> Message:
    """The message as it is safe to show; itself where it is safe already. Blocks.

    Results may hold neither control tokens nor the prompt's tags. What the model and the user say may hold tags, since
    these are theirs to write: in the text protocol a call is one.
    """
    neutraliser = layout.neutraliser if message.role == "tool" else layout.spoken
    safe, name = layout.spoken.safe, message.tool_call_id
    calls = (
        call.model_copy(
            update={
                "id": safe(call.id),
                "name": safe(call.name),
                "arguments": neutralise_arguments(layout.spoken, call.arguments),
                "extra": map_texts(dict(call.extra), safe),
            }
        )
        for call in message.tool_calls
    )
    fields = {
        "content": neutraliser.safe(message.content),
        "tool_calls": tuple(calls),
        "tool_call_id": name and safe(name),  # as the call's id
        "extra": map_texts(dict(message.extra), safe),
    }
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
