"""Converts items of responses to messages and back, and packs a conversation into one item."""

import base64
import json
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from memagent import Message
from memagent.errors import ConfigError
from memagent.integrations.openai_agents import read_items, write_items
from memagent_serve.bodies import PACKED, parse, unpack
from memagent_serve.forms import list_of
from memagent_serve.overflow import Conversation
from memagent_serve.refusals import Refusal

COMPACTION = "compaction"


def read_input(
    fields: Mapping[str, Any],
    max_body: int,
    *,
    most: int | None = None,
    threshold: int | None = None,
) -> Conversation:
    """Parses a request's `instructions`, `input` and `tools`.

    Args:
        fields: fields of the request.
        max_body: maximum bytes of a compaction item when unpacked.
        most: maximum tokens of the output.
        threshold: see `Conversation`.

    Returns:
        The conversation; without messages if the fields aren't a valid request.

    Raises:
        Refusal: a compaction item isn't from this endpoint.
    """
    input_field: object = fields.get("input")
    items = (
        [{"role": "user", "content": input_field}] if isinstance(input_field, str) else input_field
    )
    if not isinstance(items, list):
        return Conversation([], [], most)
    all_items = cast("list[Any]", items)
    places = [n for n, item in enumerate(all_items) if kind_of(item) == COMPACTION]
    old_messages, state = _unpack(all_items[places[-1]], max_body) if places else ([], None)
    try:
        pairs = read_items(all_items[places[-1] + 1 :] if places else all_items)
    except (AttributeError, KeyError, TypeError) as error:
        if places:
            raise Refusal(400, "input holds an item that can't be read", param="input") from error
        return Conversation([], [], most)  # the engine reports what is wrong
    items_by_id = {id(message): items for message, items in pairs}
    messages = [*old_messages, *(message for message, _ in pairs)]
    if instructions := _instructions(fields):
        messages.insert(0, {"role": "system", "content": instructions})
    return Conversation(messages, _tools(fields), most, threshold, state, items_by_id)


def write_input(
    messages: Sequence[dict[str, Any]], conversation: Conversation, fields: Mapping[str, Any]
) -> list[Any]:
    """Converts messages to items: the given ones where a message is unchanged.

    Args:
        messages: the prepared messages.
        conversation: from `read_input`.
        fields: fields of the request.
    """
    return write_items(_list_messages(messages, fields), conversation.items)


def pack(
    messages: Sequence[dict[str, Any]], state: Mapping[str, Any], fields: Mapping[str, Any]
) -> dict[str, Any]:
    """Packs a conversation into a compaction item. It isn't encrypted: it only has the caller's own conversation.

    Args:
        messages: messages that fit.
        state: state to continue a history that begins with them.
        fields: fields of the request, whose `instructions` aren't packed: each request has its own.
    """
    content = {"messages": _list_messages(messages, fields), "state": state}
    raw = zlib.compress(json.dumps(content).encode())
    text = base64.b64encode(raw).decode()
    return {"type": COMPACTION, "id": f"cmp_{uuid.uuid4().hex}", "encrypted_content": text}


def _unpack(
    item: Mapping[str, Any], max_body: int
) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """Unpacks the messages and state of a compaction item. It comes from a client, so it may contain anything.

    Raises:
        Refusal: the item isn't from this endpoint, or is larger than a body may be.
    """
    try:
        raw = base64.b64decode(item["encrypted_content"], validate=True)
        content: Any = parse(unpack(raw, PACKED["deflate"], max_body), max_body)
        messages: list[dict[str, Any]] = content["messages"]
        for message in messages:
            Message.from_openai(message)
        content["state"]["version"]  # the rest is checked where the state is used
        return messages, content["state"]
    except (ConfigError, KeyError, RecursionError, Refusal, TypeError, ValueError) as error:
        problem = error if isinstance(error, Refusal) else type(error).__name__
        raise Refusal(
            400,
            f"a compaction item in the input is not one of this endpoint ({problem})",
            param="input",
        ) from None


def _instructions(fields: Mapping[str, Any]) -> str:
    text = fields.get("instructions")
    return text if isinstance(text, str) else ""


def _list_messages(
    messages: Sequence[dict[str, Any]], fields: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Returns the messages of the input: without the first one if that repeats the request's `instructions`."""
    first = bool(_instructions(fields) and messages and messages[0]["role"] == "system")
    return [*messages[first:]]


def _tools(fields: Mapping[str, Any]) -> list[Any]:
    """Returns the function tools in the form of chat completions."""
    tools: list[Any] = []
    for tool in list_of(fields, "tools"):
        if kind_of(tool) == "function":
            function = {n: v for n, v in tool.items() if n != "type"}
            tools.append({"type": "function", "function": function})
    return tools


def kind_of(item: object) -> object:
    """Returns the `type` of an item or tool; None if it has none or isn't an object."""
    return cast("dict[str, Any]", item).get("type") if isinstance(item, dict) else None
