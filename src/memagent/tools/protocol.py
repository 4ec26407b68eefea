"""Tool calls as text, for models whose server doesn't parse them.

A reply with calls contains one or more of `<call>{"name": "search", "arguments": {"query": "fog"}}</call>`. A result
is shown as `<result name="search">...</result>` in a user message.

Models also write calls in the forms that they were trained on. These are accepted if unambiguous:
`<tool_call>` (Qwen, Hermes), capitals, `<call name="search">{"query": "fog"}</call>`, a call without its opening tag,
and JSON by itself, in a fence or as the whole reply, that names a tool and its arguments.
"""

import json
import re
from collections.abc import Iterable
from typing import Any

from memagent.messages import ToolCall, ToolSpec
from memagent.texts import clip, quote, read_object

CALL, RESULT = "call", "result"
"""Names of the tags, which texts shown to a model must not be able to close."""
FORM = f'<{CALL}>{{"name": "...", "arguments": {{...}}}}</{CALL}>'
"""How a call is written, for prompts."""

_NAME = rf"(?:{CALL}|tool_call)"
_OPENED = rf"<{_NAME}(?:\s[^<>]{{0,300}})?>"
_TAG = re.compile(rf"(?P<open>{_OPENED})\s*(?:```\w*\s*)?|</{_NAME}\s*>", re.IGNORECASE)
# A closing tag may be cut off by a stop sequence, or left out before the next call.
_CLOSE = re.compile(rf"\s*(?:```\s*)?(?:</{_NAME}\s*(?:>|$)|(?={_OPENED})|$)", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""\sname\s*=\s*["']([^"']+)["']""", re.IGNORECASE)
_EMPTY_FENCE = re.compile(r"```\w*\s*```")
_FENCE = re.compile(r"```\w*\s*(?=[{\[])")
_FENCE_END = re.compile(r"\s*(?:```|$)")
_NAMED = re.compile(r"""[\s\[]*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")""")
_KEY = re.compile(r"""\s*[{,]\s*("(?:[^"\\]|\\.)*")\s*:\s*""", re.DOTALL)
_DECODER = json.JSONDecoder(strict=False)
_Members = dict[str, tuple[Any, str]]
"""Members of a JSON object by name: the value, and its source text."""
_Read = tuple[str, str, int]
"""A call's name and arguments, and where it ends."""


class _Unreadable(Exception):
    """A malformed call; the message says how."""


def describe(specs: Iterable[ToolSpec]) -> str:
    """Describes tools, one JSON object per line: name, description and the JSON schema of the arguments."""
    return "\n".join(
        json.dumps(spec.model_dump(mode="json"), ensure_ascii=False, separators=(",", ":"))
        for spec in specs
    )


def read_calls(
    text: str, names: Iterable[str] = ()
) -> tuple[str, tuple[ToolCall, ...], str | None]:
    """Parses the calls of a reply without its reasoning.

    Arguments are kept as the model wrote them; whoever runs the call checks them. A code fence around the
    JSON is allowed, and so is a final call without its closing tag. A tag that is only mentioned (in
    backquotes, or followed by neither JSON nor a closing tag) isn't a call.

    Args:
        text: the reply.
        names: the available tools: for the error text, and to recognise JSON without tags as a call.

    Returns:
        The text around the calls, the calls (`call-0`, `call-1`, ...), and None. Without calls the reply is an
        answer, returned unchanged. If a call can't be parsed there are no calls, and instead of None a text that tells
        the model what is wrong and how to write a call: nothing was run.
    """
    names = tuple(names)
    reply = _Reply(text)
    try:
        _read_tagged(reply)
        if not reply.calls:
            _read_bare(reply, frozenset(names))
    except _Unreadable as error:
        return reply.read_prose(), (), _problem(len(reply.calls), str(error), names)
    if not reply.calls:
        return text, (), None
    reply.say(len(text))
    return reply.read_prose(), tuple(reply.calls), None


def write_call(call: ToolCall) -> str:
    """Returns a call as the model would have written it, without its id: calls are identified by their order."""
    # Arguments that aren't a JSON object are shown as text, which `read_calls` returns unchanged.
    name, text = (json.dumps(part, ensure_ascii=False) for part in (call.name, call.arguments))
    arguments = text if read_object(call.arguments) is None else call.arguments
    return f'<{CALL}>{{"name": {name}, "arguments": {arguments}}}</{CALL}>'


def write_result(name: str, text: str, ok: bool) -> str:
    """Returns a result as shown to the model.

    Args:
        name: the tool, as the model named it.
        text: neutralised text, so without the closing tag.
        ok: False marks a failure.
    """
    plain = re.sub(r"[^\w.:-]", "_", name)[:64]
    attribute = "" if ok else ' ok="false"'
    return f'<{RESULT} name="{plain}"{attribute}>\n{text}\n</{RESULT}>'


class _Reply:
    """A reply, and what has been parsed so far."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.calls: list[ToolCall] = []
        self._said: list[str] = []
        self._place = 0

    def say(self, end: int) -> None:
        """Adds the text between the last call and `end`."""
        self._said.append(self.text[self._place : end])

    def add(self, read: _Read) -> int:
        """Adds a call, and returns where it ends."""
        name, arguments, self._place = read
        self.calls.append(ToolCall(id=f"call-{len(self.calls)}", name=name, arguments=arguments))
        return self._place

    def read_prose(self) -> str:
        """Returns the text around calls, without fences that held nothing but a call."""
        return _EMPTY_FENCE.sub("", "".join(self._said)).strip()


def _read_tagged(reply: _Reply) -> None:
    text, position = reply.text, 0
    while tag := _TAG.search(text, position):
        opening, begin = tag["open"], tag.end()
        tag_end = tag.end("open") if opening else begin
        if opening:
            prose_end = tag.start()
            is_call = text[begin : begin + 1] in ("{", "[", "")
            if not is_call and (next_tag := _TAG.search(text, tag_end)):
                is_call = next_tag["open"] is None
        else:
            # Only the closing tag: its JSON, if any, comes before it.
            prose_end = begin = text.find("{", position, tag.start())
            is_call = begin >= 0
        if not is_call or text[tag.start() - 1 : tag.start()] == text[tag_end : tag_end + 1] == "`":
            position = tag_end
            continue
        reply.say(prose_end)
        name = _ATTRIBUTE.search(opening or "")
        call = _read_in_tag(text, begin, name and name[1])
        if not opening and call[-1] != tag_end:
            raise _Unreadable(f"<{CALL}> is missing before its JSON")
        position = reply.add(call)


def _read_in_tag(text: str, place: int, name: str | None) -> _Read:
    """Parses the call at `place`. If the tag has the name, the JSON is just the arguments, unless it has it too."""
    members, end = _members(text, place)
    close = _CLOSE.match(text, end)
    if close is None:
        after = text[end : end + 40].strip()
        raise _Unreadable(f"</{CALL}> has to follow the JSON, not {quote(after)}")
    if name is None or (members.keys() <= {"name", "arguments"} and _name(members) == name):
        return *_parts(members), close.end()
    return name, text[place:end], close.end()


def _read_bare(reply: _Reply, names: frozenset[str]) -> None:
    """Parses JSON without tags that names a tool: the whole reply, or the content of fences at its end."""
    text = reply.text
    begin = len(text) - len(text.lstrip())
    if _begins_with_name(text, 0, names) or _is_call(text, begin, names):
        if text[reply.add(_read_alone(text, begin)) :].strip():
            raise _Unreadable(f"only <{CALL}> and </{CALL}> tell several calls, or a text, apart")
        return
    place = position = 0
    while fence := _FENCE.search(text, position):
        position = fence.end()
        if not _begins_with_name(text, position, names):
            continue
        reply.say(fence.start())
        name, arguments, end = _read_alone(text, position)
        fence_end = _FENCE_END.match(text, end)
        if fence_end is None:
            raise _Unreadable(f"</{CALL}> has to follow the JSON")
        position = place = reply.add((name, arguments, fence_end.end()))
    if reply.calls and text[place:].strip():
        raise _Unreadable(f"it stands in the middle of a text, without <{CALL}>")


def _begins_with_name(text: str, place: int, names: frozenset[str]) -> bool:
    """Returns whether the JSON at `place` begins with the name of a tool, even if it is incomplete."""
    match = _NAMED.match(text, place)
    try:
        return match is not None and json.loads(match[1], strict=False) in names
    except ValueError:
        return False


def _is_call(text: str, place: int, names: frozenset[str]) -> bool:
    """Returns whether everything from `place` on is a JSON object that names a tool somewhere."""
    try:
        members, end = _members(text, place)
    except _Unreadable:
        return False
    name = _name(members)
    return isinstance(name, str) and name in names and not text[end:].strip()


def _read_alone(text: str, place: int) -> _Read:
    """Parses the call without tags whose JSON begins at `place`."""
    members, end = _members(text, place)
    if "arguments" not in members:
        raise _Unreadable("its 'arguments' are missing")
    return *_parts(members), end


def _name(members: _Members) -> Any:
    return members["name"][0] if "name" in members else None


def _parts(members: _Members) -> tuple[str, str]:
    others = [name for name in members if name not in ("name", "arguments")]
    if others:
        raise _Unreadable(
            f"{quote(others[0])} does not belong there; what the tool is given goes into 'arguments'"
        )
    name = _name(members)
    if not isinstance(name, str) or not name:
        raise _Unreadable("the tool's 'name' is missing, or no text")
    match members.get("arguments", (None, "")):
        case dict(), text:
            return name, text
        case str() as arguments, _:
            return name, arguments
        case None, _:
            return name, "{}"
        case arguments, _:
            raise _Unreadable(f"the 'arguments' must be a JSON object, not {quote(arguments)}")


def _members(text: str, place: int) -> tuple[_Members, int]:
    """Parses the JSON object at `place`; returns its members, and where it ends."""
    if not text.startswith("{", place):
        excerpt = quote(text[place : place + 40])
        raise _Unreadable(f"a JSON object has to follow <{CALL}>, not {excerpt}")
    _, end = _value(text, place)
    members: _Members = {}
    while key := _KEY.match(text, place):
        name = json.loads(key[1], strict=False)
        if name in members:
            raise _Unreadable(f"{quote(name)} is there twice")
        value, place = _value(text, key.end())
        members[name] = value, text[key.end() : place]
    return members, end


def _value(text: str, place: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, place)
    except json.JSONDecodeError as error:
        excerpt = text[max(0, error.pos - 20) : error.pos + 20]
        raise _Unreadable(f"it is not JSON: {error.msg}, near {quote(excerpt)}") from None
    except (ValueError, RecursionError) as error:
        raise _Unreadable(f"its JSON cannot be read: {clip(str(error), 200)}") from None


def _problem(call_count: int, reason: str, names: Iterable[str]) -> str:
    listing = clip(", ".join(names), 1000)
    tools = f" The tools are: {listing}." if listing else ""
    return (
        f"Your tool call could not be read (number {call_count + 1} of your reply): {reason}. Nothing was run. "
        f"Write each call as {FORM}, with valid JSON inside.{tools}"
    )
