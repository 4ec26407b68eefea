"""What an expert can see: the last summary and the tool results in the messages before it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from memagent.messages import Message
from memagent.tools.protocol import read_calls

SUMMARY = re.compile(r"<summary>(.*?)</summary>", re.DOTALL)
RESULT = re.compile(r"<result\b[^>]*>(.*?)</result>", re.DOTALL)
LINE = re.compile(r"^[^\w\n]*(\w+)\((.*?)\) -> (.*)$", re.MULTILINE)
"""The form in which a result is repeated after a summary."""
PAIR = re.compile(r'(\w+)\s*[=:]\s*("(?:[^"\\]|\\.)*"|[^,]*)')

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


class Call(NamedTuple):
    """A tool call, in a form in which equal calls are equal."""

    name: str
    arguments: str
    """JSON with sorted keys and no spaces."""


def call(name: str, /, **arguments: int | str) -> Call:
    """Returns the call of a tool with these arguments."""
    return Call(name, _write(arguments))


def summaries(messages: Sequence[Message]) -> Iterator[str]:
    """Yields the summaries in the messages, the last one first."""
    for message in reversed(messages):
        if message.role in ("user", "system"):
            yield from reversed(SUMMARY.findall(message.content))


def results(messages: Sequence[Message]) -> dict[Call, list[str]]:
    """Returns the results of each call, in order.

    Reads native tool calls, calls in the text protocol, and lines `tool(arguments) -> result`.
    A result without an id, or with an id that no open call has, belongs to the first call without a result.
    """
    by_call: dict[Call, list[str]] = {}
    for call, text in _pairs(messages):
        by_call.setdefault(call, []).append(text.strip())
    return by_call


def _pairs(messages: Sequence[Message]) -> Iterator[tuple[Call, str]]:
    waiting: list[tuple[str | None, Call | None]] = []
    for message in messages:
        if message.role == "assistant":
            waiting = _list_calls(message)
            continue
        if message.role == "tool":
            texts = [(message.tool_call_id, message.content)]
        else:
            yield from _lines(message.content)
            texts = [(None, text) for text in RESULT.findall(message.content)]
        for key, text in texts:
            if not waiting:
                break
            keys = [key for key, _ in waiting]
            place = keys.index(key) if key is not None and key in keys else 0
            call = waiting.pop(place)[1]
            if call is not None:
                yield call, text


def _list_calls(message: Message) -> list[tuple[str | None, Call | None]]:
    """Returns the calls that an assistant made; None stands for one that can't be parsed."""
    calls = message.tool_calls or read_calls(message.content)[1]
    return [(call.id, _call(call.name, call.arguments)) for call in calls]


def _lines(text: str) -> Iterator[tuple[Call, str]]:
    for name, arguments, result in LINE.findall(text):
        if not arguments.startswith("{"):
            arguments = _write({key: _value(value) for key, value in PAIR.findall(arguments)})
        call = _call(name, arguments)
        if call is not None:
            yield call, result


def _value(text: str) -> Any:
    """Parses an argument of a line: JSON, or a word without quotes."""
    try:
        return json.loads(text)
    except ValueError:
        return text.strip(" '")


# The whole history is read again for each reply of an expert.
@lru_cache(maxsize=16384)
def _call(name: str, arguments: str) -> Call | None:
    values = _object(arguments or "{}")
    return None if values is None else Call(name, _write(values))


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def _write(arguments: Mapping[str, Any]) -> str:
    return _ENCODER.encode(arguments)
