"""`CompactCalls`: tools for small models and windows, as lines such as `cell(3, 4)`.

The text protocol of `memagent.tools.protocol` shows a JSON schema for each tool, and a call takes some twenty tokens
of JSON. Here a tool is its signature, a call one line, and a result a line that begins with `->`:

    cell(row, column)            in the system message
    cell(3, 4)                   the model
    -> Row 3, column 4 holds 17. the user
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from memagent.errors import ConfigError
from memagent.messages import ChatRequest, Completion, Message, ToolCall, ToolSpec
from memagent.models.base import Wrapper
from memagent.tokens import Measured, TokenCounter

CALL = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)
VALUE = re.compile(r"\s*(?:(\w+)\s*=\s*)?([^,]*)")
END = re.compile(r"\s*(?:,|\Z)")
JSON = json.JSONDecoder()
WRITTEN = "written"
"""Field of an assistant message with its text as the model wrote it; rewriting the text would change its ids."""


def compact_wording() -> Path:
    """Returns the file of a short prompt set, for `ToolAgent(prompts=)`."""
    with resources.as_file(resources.files("memagent_train") / "compact.toml") as file:
        return file


class CompactCalls(Wrapper):
    """Gives native tool calls to a model without them.

    A reply is a call if its last line calls a tool; any other reply is text. Values are positional or named, in JSON
    or as plain words.

    ```python
    agent = ToolAgent(CompactCalls(model), tools, working_context=256, prompts=compact_wording())
    ```

    Args:
        inner: the model; it sees only text messages of system, user and assistant.
    """

    async def complete(self, request: ChatRequest) -> Completion:
        """Sends the request as text, and parses the call in the reply.

        If no call is allowed (`tool_choice`), a reply that makes one counts as empty.
        """
        plain = {
            "messages": write(request.messages, request.tools),
            "tools": (),
            "tool_choice": None,
        }
        completion = await self.inner.complete(request.model_copy(update=plain))
        text, call = read_call(completion.text, request.tools)
        if call is None:
            return completion
        if request.tool_choice == "none":
            return completion.model_copy(update={"text": ""})
        # Unique in its context: each reply has at most one call.
        named = call.model_copy(update={"id": f"call{len(request.messages) % 100_000:05d}"})
        extra = {**completion.extra, WRITTEN: completion.text}
        return completion.model_copy(update={"text": text, "tool_calls": (named,), "extra": extra})

    async def counter(self) -> TokenCounter:
        """Returns a counter of what is sent."""
        return CompactCounter(await self.inner.counter())


class CompactCounter:
    """Counts prompts with tools as `CompactCalls` sends them.

    Args:
        inner: the model's counter.
    """

    def __init__(self, inner: TokenCounter) -> None:
        self._inner = inner
        self.name = f"{inner.name}+compact"
        self.control_tokens = inner.control_tokens
        self.exact: bool = getattr(inner, "exact", True)

    def count(self, text: str) -> int:
        """Counts the tokens of a text."""
        return self._inner.count(text)

    def count_messages(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """Counts the tokens of a prompt."""
        return self._inner.count_messages(write(messages, tools), thinking=thinking)

    def measure(self, text: str) -> Measured:
        """Measures a text, for cutting it."""
        return self._inner.measure(text)


def write(messages: Iterable[Message], tools: Sequence[ToolSpec]) -> tuple[Message, ...]:
    """Writes the messages as plain text: tools in the first one, calls and results as lines."""
    plain: list[Message] = []
    for message in messages:
        role, text = message.role, message.content
        if role == "tool":
            role, text = "user", f"-> {text}"
        elif message.tool_calls:
            lines = "\n".join(filter(None, (text, *map(write_call, message.tool_calls))))
            text = str(message.extra.get(WRITTEN, lines))
        if not plain and tools:
            text = "\n".join(filter(None, (text, *map(describe, tools))))
        if plain and plain[-1].role == role == "user":  # some templates require alternating roles
            text = f"{plain.pop().content}\n{text}"
        plain.append(Message(role=role, content=text))
    return tuple(plain)


def describe(tool: ToolSpec) -> str:
    """Returns a tool's signature, without types: a policy trained on it learns what the tool does."""
    return f"{tool.name}({', '.join(_parameters(tool))})"


def write_call(call: ToolCall) -> str:
    """Writes a call as a model would, with all values by name."""
    values = ", ".join(f"{name}={json.dumps(value)}" for name, value in call.values().items())
    return f"{call.name}({values})"


def read_call(text: str, tools: Sequence[ToolSpec]) -> tuple[str, ToolCall | None]:
    """Returns the text before the last line, and the call there; if there is none, the whole text and None."""
    prose, _, line = text.strip().rpartition("\n")
    match = CALL.fullmatch(line.strip())
    tool = next((tool for tool in tools if match and tool.name == match[1]), None)
    if match is None or tool is None:
        return text, None
    kinds = _parameters(tool)
    values: dict[str, Any] = {}
    for place, (name, value) in enumerate(_split(match[2])):
        parameter = name or (list(kinds)[place] if place < len(kinds) else f"value {place + 1}")
        values[parameter] = _value(value, kinds.get(parameter))
    return prose.strip(), ToolCall(id="call", name=tool.name, arguments=json.dumps(values))


def _split(text: str) -> Iterator[tuple[str, str]]:
    """Yields the name (empty if not given) and text of each value. JSON may contain commas, plain words may not.

    Takes linear time: what is nested in a list or object that isn't a value is plain words.
    """
    place = tried = 0
    while place < len(text):
        match = VALUE.match(text, place)
        assert match is not None  # the pattern matches anything
        start, end = match.span(2)
        place = end + 1
        nests = text.startswith(("[", "{"), start)
        if text.startswith('"', start) or (nests and start >= tried):
            close, is_value = _find_end(text, start)
            if is_value:
                end = place = close
            elif nests:
                tried = close
        value = text[start:end].strip()
        if match[1] or value:
            yield match[1] or "", value


def _find_end(text: str, start: int) -> tuple[int, bool]:
    """Returns where the JSON at `start` ends or breaks, and whether it is a value: whole, with a comma or no more."""
    try:
        _, end = JSON.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        return getattr(error, "pos", len(text)), False
    return end, END.match(text, end) is not None


def _parameters(tool: ToolSpec) -> dict[str, str | None]:
    """Returns the parameters' names in order, with their JSON schema types."""
    properties = tool.parameters.get("properties")
    if not isinstance(properties, Mapping):
        raise ConfigError(f"the tool {tool.name!r} has no properties in its schema: give it some")
    return {name: _type(schema) for name, schema in properties.items()}


def _type(schema: object) -> str | None:
    kind = schema.get("type") if isinstance(schema, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return kind if isinstance(kind, str) else None


def _value(text: str, kind: str | None) -> Any:
    """Parses a value as JSON, else returns the text; for a string parameter, only quoted JSON is parsed."""
    if kind == "string" and not text.startswith('"'):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
