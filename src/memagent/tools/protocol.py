"""Tool calls as text, for models whose server reads none.

A reply with calls holds one or more of `<call>{"name": "search", "arguments": {"query": "fog"}}</call>`. A result is
shown as `<result name="search">...</result>` in a message of the user.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from memagent.messages import ToolCall, ToolSpec
from memagent.tools.wording import clip, sendable, shown

CALL = "call"
RESULT = "result"
TAGS = (CALL, RESULT)
"""Names of the tags, which texts that are shown to a model must not be able to close."""
FORM = f'<{CALL}>{{"name": "...", "arguments": {{...}}}}</{CALL}>'
"""How a call is written, for prompts."""

_OPEN = re.compile(rf"<{CALL}\s*>\s*(?:```\w*\s*)?")
# A closing tag may be cut off by a stop text, or be left out before the next call.
_CLOSE = re.compile(rf"\s*(?:```\s*)?(?:</{CALL}\s*(?:>|$)|(?=<{CALL}\s*>)|$)")
_EMPTY_FENCE = re.compile(r"```\w*\s*```")
_DECODER = json.JSONDecoder(strict=False)


class _Unreadable(Exception):
    """A call that is not as it should be; the message says how."""


def describe(specs: Iterable[ToolSpec]) -> str:
    """The tools, one JSON object a line: name, description and the JSON schema of the arguments."""
    return "\n".join(
        json.dumps(spec.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":"))
        for spec in specs
    )


def read_calls(
    text: str, names: Iterable[str] = ()
) -> tuple[str, tuple[ToolCall, ...], str | None]:
    """Reads the calls of a reply whose reasoning is taken off.

    Arguments are kept as the model wrote them; whether they fit is for whoever runs the call. A code fence around the
    JSON is allowed, and so is a call that the reply ends in without its closing tag.

    Args:
        text: the reply.
        names: the tools that there are, for the problem's text.

    Returns:
        What was said around the calls, the calls (`call-0`, `call-1`, ...), and None. Without calls the reply is an
        answer, and said as it is. If one cannot be read then there are no calls, and a text instead of None that tells
        the model what is wrong and how it is written: nothing was run.
    """
    text = sendable(text)
    said: list[str] = []
    calls: list[ToolCall] = []
    place = 0
    while found := _OPEN.search(text, place):
        said.append(text[place : found.start()])
        try:
            call, place = _read(text, found.end(), f"call-{len(calls)}")
        except _Unreadable as error:
            return _joined(said), (), _problem(len(calls), str(error), names)
        calls.append(call)
    if not calls:
        return text, (), None
    return _joined([*said, text[place:]]), tuple(calls), None


def write_call(call: ToolCall) -> str:
    """A call as the model would have written it. Its id is not written: calls are told apart by their order."""
    # Arguments that are no JSON object are shown as a text, which `read_calls` gives back as it is.
    name, text = (json.dumps(one, ensure_ascii=False) for one in (call.name, call.arguments))
    arguments = call.arguments if _is_object(call.arguments) else text
    return f'<{CALL}>{{"name": {name}, "arguments": {arguments}}}</{CALL}>'


def write_result(name: str, text: str, ok: bool) -> str:
    """A result as it is shown to the model.

    Args:
        name: the tool, as the model named it.
        text: neutralised: it may not hold the closing tag.
        ok: False marks a failure.
    """
    plain = re.sub(r"[^\w.:-]", "_", name)[:64]
    failed = "" if ok else ' ok="false"'
    return f'<{RESULT} name="{plain}"{failed}>\n{text}\n</{RESULT}>'


def _read(text: str, place: int, call_id: str) -> tuple[ToolCall, int]:
    """One call whose JSON begins at `place`, and where it ends."""
    members, end = _members(text, place)
    close = _CLOSE.match(text, end)
    if close is None:
        after = text[end : end + 40].strip()
        raise _Unreadable(f"</{CALL}> has to follow the JSON, not {shown(after)}")
    others = [name for name in members if name not in ("name", "arguments")]
    if others:
        raise _Unreadable(
            f"{shown(others[0])} does not belong there; what the tool is given goes into 'arguments'"
        )
    name = members["name"][0] if "name" in members else None
    if not isinstance(name, str) or not name:
        raise _Unreadable("the tool's 'name' is missing, or no text")
    arguments, begin, after = members.get("arguments", (None, 0, 0))
    match arguments:
        case dict():
            written = text[begin:after]
        case str():
            written = sendable(arguments)
        case None:
            written = "{}"
        case _:
            raise _Unreadable(f"the 'arguments' are no JSON object, but {shown(arguments)}")
    return ToolCall(id=call_id, name=sendable(name), arguments=written), close.end()


def _members(text: str, place: int) -> tuple[dict[str, tuple[Any, int, int]], int]:
    """The members of the JSON object at `place`, each with where it stands, and the object's end."""
    if not text.startswith("{", place):
        raise _Unreadable(
            f"a JSON object has to follow <{CALL}>, not {shown(text[place : place + 40])}"
        )
    members: dict[str, tuple[Any, int, int]] = {}
    place = _past(text, place + 1)
    if text.startswith("}", place):
        return members, place + 1
    while True:
        name, place = _value(text, place)
        if not isinstance(name, str) or name in members:
            raise _Unreadable(f"{shown(name)} is no name of a member, or is there twice")
        place = _expect(text, place, ":")
        begin = place
        value, place = _value(text, place)
        members[name] = (value, begin, place)
        place = _past(text, place)
        if text.startswith("}", place):
            return members, place + 1
        place = _expect(text, place, ",")


def _value(text: str, place: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, place)
    except json.JSONDecodeError as error:
        near = text[max(0, error.pos - 20) : error.pos + 20]
        raise _Unreadable(f"it is no JSON: {error.msg}, near {shown(near)}") from None
    except (ValueError, RecursionError) as error:
        raise _Unreadable(f"its JSON cannot be read: {clip(str(error), 200)}") from None


def _expect(text: str, place: int, char: str) -> int:
    place = _past(text, place)
    if not text.startswith(char, place):
        raise _Unreadable(
            f"{char!r} is missing in its JSON, near {shown(text[max(0, place - 20) : place + 20])}"
        )
    return _past(text, place + 1)


def _past(text: str, place: int) -> int:
    """Where white space ends."""
    while place < len(text) and text[place] in " \t\r\n":
        place += 1
    return place


def _is_object(text: str) -> bool:
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and end == len(text)


def _joined(said: list[str]) -> str:
    """What stands around calls; a fence that held nothing but a call goes with it."""
    return _EMPTY_FENCE.sub("", "".join(said)).strip()


def _problem(before: int, what: str, names: Iterable[str]) -> str:
    known = clip(", ".join(names), 1000)
    tools = f" The tools are: {known}." if known else ""
    return (
        f"Your tool call could not be read (number {before + 1} of your reply): {what}. Nothing was run. "
        f"Write each call as {FORM}, with valid JSON inside.{tools}"
    )
