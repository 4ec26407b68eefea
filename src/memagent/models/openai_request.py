"""Messages as they go to OpenAI-compatible servers."""

from __future__ import annotations

import json
from typing import Any

from memagent.messages import Message, ToolCall


def sent(message: Message) -> dict[str, Any]:
    """A message of a request's body.

    Arguments that are no JSON object go as an empty one: SGLang and llama-server refuse the whole conversation for
    them, and vLLM shows the model nothing else. What the call was refused for stands in its result.
    """
    fields = message.to_openai()
    for call, form in zip(message.tool_calls, fields.get("tool_calls", ()), strict=False):
        if not call.values():
            form["function"]["arguments"] = "{}"
    return fields


def identity(message: Message) -> bytes:
    """What tells a message from others, for digests of conversations: each field with its length."""
    texts = [message.content]
    for call in message.tool_calls:
        texts += ["call", call.id, call.name, call.arguments, *_extra(call)]
    if message.tool_call_id is not None:
        texts += ["result", message.tool_call_id]
    texts += _extra(message)
    parts = [text.encode("utf-8", "surrogatepass") for text in texts]
    sizes = ":".join(str(len(part)) for part in parts)
    return b"".join([f"{message.role}:{sizes}:".encode(), *parts])


def _extra(value: Message | ToolCall) -> list[str]:
    return ["extra", json.dumps(value.extra)] if value.extra else []
