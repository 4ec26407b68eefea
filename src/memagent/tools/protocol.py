"""Tool calls as text, for models whose server reads none.

A reply with calls holds one or more of `<call>{"name": "search", "arguments": {"query": "fog"}}</call>`. A result is
shown as `<result name="search">...</result>` in a message of the user.

Models write calls in the forms that they were trained on, too. These are read where they can mean nothing else:
`<tool_call>` (Qwen, Hermes), capitals, `<call name="search">{"query": "fog"}</call>`, a call without its opening tag,
and JSON by itself, in a fence or as the whole reply, that names a tool and its arguments.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from memagent.messages import ToolCall, ToolSpec
from memagent.texts import clip, quote

CALL = "call"
RESULT = "result"
TAGS = (CALL, RESULT)
"""Names of the tags, which texts that are shown to a model must not be able to close."""
FORM = f'<{CALL}>{{"name": "...", "arguments": {{...}}}}</{CALL}>'
"""How a call is written, for prompts."""

_NAME = rf"(?:{CALL}|tool_call)"
_OPENED = rf"<{_NAME}(?:\s[^<>]{{0,300}})?>"
_TAG = re.compile(rf"(?P<open>{_OPENED})|</{_NAME}\s*>", re.IGNORECASE)
_FENCED = re.compile(r"\s*(?:```\w*\s*)?")
# A closing tag may be cut off by a stop text, or be left out before the next call.
_CLOSE = re.compile(rf"\s*(?:```\s*)?(?:</{_NAME}\s*(?:>|$)|(?={_OPENED})|$)", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""\sname\s*=\s*["']([^"']+)["']""", re.IGNORECASE)
_EMPTY_FENCE = re.compile(r"```\w*\s*```")
_FENCE = re.compile(r"```\w*\s*(?=[{\[])")
_FENCE_END = re.compile(r"\s*(?:```|$)")
_NAMED = re.compile(r"""[\s\[]*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")""")
_DECODER = json.JSONDecoder(strict=False)
_Member = tuple[Any, int, int]
"""A value of an object, where it begins, and where it ends."""


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
    JSON is allowed, and so is a call that the reply ends in without its closing tag. A tag that is only spoken of (in
    backquotes, or with neither JSON nor a closing tag behind it) is no call.

    Args:
        text: the reply.
        names: the tools that there are: for the problem's text, and to know JSON without tags for a call.

    Returns:
        What was said around the calls, the calls (`call-0`, `call-1`, ...), and None. Without calls the reply is an
        answer, and said as it is. If one cannot be read then there are no calls, and a text instead of None that tells
        the model what is wrong and how it is written: nothing was run.
    """
    names = tuple(names)
    said: list[str] = []
    calls: list[ToolCall] = []
    try:
        rest = _tagged(text, said, calls)
        if not calls:
            rest = _bare(text, frozenset(names), said, calls)
    except _Unreadable as error:
        return _joined(said), (), _problem(len(calls), str(error), names)
    if not calls:
        return text, (), None
    return _joined([*said, text[rest:]]), tuple(calls), None


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


def _tagged(text: str, said: list[str], calls: list[ToolCall]) -> int:
    """Reads the calls that stand in tags. What was said before each, and where the last one ends."""
    place = looked = 0
    while tag := _TAG.search(text, looked):
        fence = _FENCED.match(text, tag.end())
        assert fence is not None, "it matches nothing as well"
        begin = fence.end()
        before, name = tag.start(), None
        if tag["open"] is None:
            # Only the closing tag: its JSON, if there is any, stands before it.
            before = begin = text.find("{", looked, tag.start())
            meant = begin >= 0
        else:
            meant = text[begin : begin + 1] in ("{", "[", "") or _closes(text, tag.end())
            name = _ATTRIBUTE.search(tag["open"])
        if (
            not meant
            or text[tag.start() - 1 : tag.start()] == text[tag.end() : tag.end() + 1] == "`"
        ):
            looked = tag.end()
            continue
        said.append(text[place:before])
        call, place = _read(text, begin, f"call-{len(calls)}", None if name is None else name[1])
        if tag["open"] is None and place != tag.end():
            raise _Unreadable(f"<{CALL}> is missing before its JSON")
        calls.append(call)
        looked = place
    return place


def _closes(text: str, place: int) -> bool:
    """Whether the next tag is a closing one."""
    tag = _TAG.search(text, place)
    return tag is not None and tag["open"] is None


def _bare(text: str, names: frozenset[str], said: list[str], calls: list[ToolCall]) -> int:
    """Reads JSON without tags that names a tool: the whole reply, or what stands in fences at its end."""
    if _names(text, 0, names) or _is_named(text, names):
        call, place = _alone(text, _past(text, 0), 0)
        if text[place:].strip():
            raise _Unreadable(f"only <{CALL}> and </{CALL}> tell several calls, or a text, apart")
        calls.append(call)
        return place
    place = looked = 0
    while fence := _FENCE.search(text, looked):
        looked = fence.end()
        if not _names(text, looked, names):
            continue
        said.append(text[place : fence.start()])
        call, place = _alone(text, looked, len(calls))
        end = _FENCE_END.match(text, place)
        if end is None:
            raise _Unreadable(f"</{CALL}> has to follow the JSON")
        calls.append(call)
        looked = place = end.end()
    if calls and text[place:].strip():
        raise _Unreadable(f"it stands in the middle of a text, without <{CALL}>")
    return place


def _names(text: str, place: int, names: frozenset[str]) -> bool:
    """Whether the JSON at `place` begins with the name of a tool."""
    found = _NAMED.match(text, place)
    try:
        return found is not None and json.loads(found[1], strict=False) in names
    except ValueError:
        return False


def _is_named(text: str, names: frozenset[str]) -> bool:
    """Whether all of the reply is a JSON object that names a tool somewhere."""
    try:
        members, end = _members(text, _past(text, 0))
    except _Unreadable:
        return False
    name = _said(members)
    return isinstance(name, str) and name in names and not text[end:].strip()


def _alone(text: str, place: int, number: int) -> tuple[ToolCall, int]:
    """One call without tags whose JSON begins at `place`, and where that ends."""
    members, end = _members(text, place)
    if "arguments" not in members:
        raise _Unreadable("its 'arguments' are missing")
    return _call(text, members, f"call-{number}"), end


def _read(text: str, place: int, call_id: str, name: str | None) -> tuple[ToolCall, int]:
    """One call whose JSON begins at `place`, and where it ends.

    Args:
        text: the reply.
        place: of the JSON.
        call_id: of the call.
        name: from the tag: the JSON is the arguments then, unless it says the name again.
    """
    members, end = _members(text, place)
    close = _CLOSE.match(text, end)
    if close is None:
        after = text[end : end + 40].strip()
        raise _Unreadable(f"</{CALL}> has to follow the JSON, not {quote(after)}")
    if name is None or (members.keys() <= {"name", "arguments"} and _said(members) == name):
        return _call(text, members, call_id), close.end()
    return ToolCall(id=call_id, name=name, arguments=text[place:end]), close.end()


def _said(members: Mapping[str, _Member]) -> Any:
    """The name in a call's JSON."""
    return members["name"][0] if "name" in members else None


def _call(text: str, members: Mapping[str, _Member], call_id: str) -> ToolCall:
    """The call that the members of its JSON make."""
    others = [name for name in members if name not in ("name", "arguments")]
    if others:
        raise _Unreadable(
            f"{quote(others[0])} does not belong there; what the tool is given goes into 'arguments'"
        )
    name = _said(members)
    if not isinstance(name, str) or not name:
        raise _Unreadable("the tool's 'name' is missing, or no text")
    arguments, begin, after = members.get("arguments", (None, 0, 0))
    match arguments:
        case dict():
            written = text[begin:after]
        case str():
            written = arguments
        case None:
            written = "{}"
        case _:
            raise _Unreadable(f"the 'arguments' are no JSON object, but {quote(arguments)}")
    return ToolCall(id=call_id, name=name, arguments=written)


def _members(text: str, place: int) -> tuple[dict[str, _Member], int]:
    """The members of the JSON object at `place`, each with where it stands, and the object's end."""
    if not text.startswith("{", place):
        raise _Unreadable(
            f"a JSON object has to follow <{CALL}>, not {quote(text[place : place + 40])}"
        )
    members: dict[str, _Member] = {}
    place = _past(text, place + 1)
    if text.startswith("}", place):
        return members, place + 1
    while True:
        name, place = _value(text, place)
        if not isinstance(name, str) or name in members:
            raise _Unreadable(f"{quote(name)} is no name of a member, or is there twice")
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
        raise _Unreadable(f"it is no JSON: {error.msg}, near {quote(near)}") from None
    except (ValueError, RecursionError) as error:
        raise _Unreadable(f"its JSON cannot be read: {clip(str(error), 200)}") from None


def _expect(text: str, place: int, char: str) -> int:
    place = _past(text, place)
    if not text.startswith(char, place):
        raise _Unreadable(
            f"{char!r} is missing in its JSON, near {quote(text[max(0, place - 20) : place + 20])}"
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
