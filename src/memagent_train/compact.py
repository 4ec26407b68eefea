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
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Any

from memagent.errors import ConfigError
from memagent.messages import ChatRequest, Completion, Message, ToolCall, ToolSpec
from memagent.models.base import Wrapper
from memagent.tokens import Measured, TokenCounter

CALL = re.compile(r"(\w+)\s*\((.*)\)", re.DOTALL)
VALUE = re.compile(r"\s*(?:(\w+)\s*=\s*)?([^,]*)")
JSON = json.JSONDecoder()
WRITTEN = "written"
"""The field of an assistant's message with its text as the model wrote it: rewritten, its ids would change."""


def compact_wording() -> Path:
    """The file of a short wording, for `ToolAgent(prompts=)`."""
    with resources.as_file(resources.files("memagent_train") / "compact.toml") as file:
        return file


class CompactCalls(Wrapper):
    """Gives native tool calls to a model without them.

    A reply whose last line is a call of a tool is that call; any other reply is text. Values are given in the order of
    the tool's parameters or by name, as JSON or as plain words.

    ```python
    agent = ToolAgent(CompactCalls(model), tools, working_context=256, prompts=compact_wording())
    ```

    Args:
        inner: the model; it sees only texts of system, user and assistant.
    """

    async def complete(self, request: ChatRequest) -> Completion:
        """Sends the request as text, and reads the call in the reply.

        Where no call may be made (`tool_choice`), a reply that makes one is read as empty.
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
        # Unique in its context, which has one call a reply.
        named = call.model_copy(update={"id": f"call{len(request.messages) % 100_000:05d}"})
        extra = {**completion.extra, WRITTEN: completion.text}
        return completion.model_copy(update={"text": text, "tool_calls": (named,), "extra": extra})

    async def counter(self) -> TokenCounter:
        """Counts what is sent."""
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
        """Tokens of a text."""
        return self._inner.count(text)

    def count_messages(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Sequence[ToolSpec] = (),
    ) -> int:
        """Tokens of the prompt."""
        return self._inner.count_messages(write(messages, tools), thinking=thinking)

    def measure(self, text: str) -> Measured:
        """The text, for cutting it."""
        return self._inner.measure(text)


def write(messages: Iterable[Message], tools: Sequence[ToolSpec]) -> tuple[Message, ...]:
    """The messages as texts: tools in the first one, calls and results as lines."""
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
    """A tool's signature, without types: a policy that is trained on it learns what it does."""
    return f"{tool.name}({', '.join(_parameters(tool))})"


def write_call(call: ToolCall) -> str:
    """A call as a model writes it, with all values by name."""
    values = ", ".join(f"{name}={json.dumps(value)}" for name, value in call.values().items())
    return f"{call.name}({values})"


def read_call(text: str, tools: Sequence[ToolSpec]) -> tuple[str, ToolCall | None]:
    """What a reply says before its last line, and the call there; all of it and None if there is none."""
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
    """Name (empty if not given) and text of each value; JSON may have commas inside, words may not."""
    while text.strip(" ,"):
        match = VALUE.match(text)
        assert match is not None  # of anything
        value, remainder = match[2], text[match.end() + 1 :]
        with suppress(ValueError, RecursionError):
            tail = text[match.start(2) :]
            _, end = JSON.raw_decode(tail)
            after = tail[end:].lstrip()
            if after[:1] in ("", ","):
                value, remainder = tail[:end], after[1:]
        if match[1] or value.strip():
            yield match[1] or "", value.strip()
        text = remainder


def _parameters(tool: ToolSpec) -> dict[str, str | None]:
    """Names of the parameters in order, and their types in JSON schema."""
    properties = tool.parameters.get("properties")
    if not isinstance(properties, Mapping):
        raise ConfigError(f"the tool {tool.name!r} has no properties in its schema: give it some")
    return {name: _type(schema) for name, schema in properties.items()}


def _type(schema: object) -> str | None:
    kind = schema.get("type") if isinstance(schema, Mapping) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return kind if isinstance(kind, str) else None


def _value(text: str, kind: str | None) -> Any:
    """JSON, else the text itself; of a text parameter only JSON in quotes is read."""
    if kind == "string" and not text.startswith('"'):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
