"""What goes to a model and what comes back: the types of the `ChatModel` protocol."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from operator import add, attrgetter, sub
from typing import TYPE_CHECKING, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
)

from memagent.errors import ConfigError
from memagent.served import OtherPart, ServedCall, ServedMessage, read_extra
from memagent.texts import Extra, Text, describe_problem, quote, read_object

_SPARSE = ("tool_calls", "tool_call_id", "extra")

Role = Literal["system", "user", "assistant", "tool"]
CallKind = Literal["update", "answer", "act", "summary", "other"]


class Leaf(BaseModel):
    """Base of the value types: immutable, unknown fields rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Options(Leaf):
    """Base of types that users construct: a bad or unknown value raises a ConfigError."""

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise ConfigError(describe_problem(error, type(self).model_fields)) from error

        # Otherwise pydantic would call `__init__` for nested values too, and couldn't name their location.
        __init__.__pydantic_base_init__ = True


class _Sparse(Leaf):
    """Omits empty fields that only tool sessions use from the serialised form."""

    @model_serializer(mode="wrap")
    def _serialise(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = handler(self)
        for name in _SPARSE:
            if not fields.get(name):
                fields.pop(name, None)
        return fields

    def __hash__(self) -> int:
        return hash(tuple(value for name, value in self if name != "extra"))


class ToolCall(_Sparse):
    """A model's request to run a tool."""

    id: Text
    """The id by which the result refers to it."""
    name: Text
    arguments: Text
    """JSON as the model wrote it; may be malformed."""
    extra: Extra = Field(default_factory=dict)
    """Other fields of the call, which its server may need back (Gemini's `extra_content`)."""

    def values(self) -> dict[str, JsonValue]:
        """Returns the arguments as chat templates take them; empty if they aren't a JSON object, as in vLLM."""
        return read_object(self.arguments) or {}

    def to_openai(self) -> dict[str, Any]:
        """Returns the call as an element of a message's `tool_calls`."""
        function = {"name": self.name, "arguments": self.arguments}
        return {**self.extra, "id": self.id, "type": "function", "function": function}


class ToolSpec(Leaf):
    """A tool as a model sees it."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = ""
    parameters: Mapping[str, JsonValue] = Field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    """JSON schema of the arguments, of type object."""
    _given: Mapping[str, Any] | None = None

    @classmethod
    def from_openai(cls, fields: Mapping[str, Any] | ToolSpec) -> ToolSpec:
        """Reads an element of a request's `tools`. `to_openai` returns it unchanged: servers count each character.

        Raises:
            ConfigError: it isn't a function in the form of chat completions.
        """
        if isinstance(fields, ToolSpec):
            return fields
        try:
            function = fields["function"]
            values = {n: v for n, v in function.items() if n in cls.model_fields and v is not None}
            spec = cls(**values)
        except (AttributeError, KeyError, TypeError, ValidationError) as error:
            raise ConfigError(
                f"{quote(fields)} is not a function: give an element of a request's tools, of type function"
            ) from error
        spec._given = fields
        return spec

    def to_openai(self) -> dict[str, Any]:
        """Returns the tool for a request's `tools`, with its description even if empty: templates expect it."""
        if self._given is not None:
            return dict(self._given)
        return {"type": "function", "function": dict(self) | {"parameters": dict(self.parameters)}}


def read_calls(served: Iterable[ServedCall]) -> tuple[ToolCall, ...]:
    """Reads the calls of one message. A call whose id is missing or repeated gets an id from its position.

    Missing or empty arguments become an empty object.
    """
    calls: list[ToolCall] = []
    names: set[str] = set()
    for place, call in enumerate(served):
        # Nine letters and digits: Mistral's templates accept no other ids.
        ids = (f"call{number:05d}" for number in range(place, place + len(names) + 1))
        free_name = next(name for name in ids if name not in names)
        name = call.id if call.id and call.id not in names else free_name
        names.add(name)
        value = call.function.arguments or {}
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        extra = read_extra(call, "type", "index")
        calls.append(ToolCall(id=name, name=call.function.name, arguments=text, extra=extra))
    return tuple(calls)


class Message(_Sparse):
    """One message of a conversation."""

    role: Role
    content: Text
    tool_calls: tuple[ToolCall, ...] = ()
    """For an assistant: the tools to run, in order."""
    tool_call_id: Text | None = None
    """For a tool: the id of the call whose result this is."""
    extra: Extra = Field(default_factory=dict)
    """Other fields, which the server may need back (DeepSeek's `reasoning_content`). A `content` here replaces the
    text when sent: parts that aren't only text."""

    @classmethod
    def from_openai(cls, fields: Mapping[str, Any] | BaseModel) -> Message:
        """Reads a message in OpenAI's form, a mapping or a reply's message; a `Message` is returned unchanged.

        Other non-empty fields (`name`, `reasoning_content`) go into `extra`, and so does content with parts that aren't
        text. A `developer` becomes a `system`, text parts become lines, and missing content becomes empty. Calls are
        read as by `read_calls`.

        Raises:
            ConfigError: it isn't a chat message of JSON values, or has a `function_call`.
        """
        if isinstance(fields, Message):
            return fields
        if isinstance(fields, BaseModel):
            fields = fields.model_dump(exclude_none=True)
        if isinstance(fields, Mapping) and fields.get("function_call") is not None:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"{quote(fields)}: function_call is the deprecated form, which has no id; use tool_calls"
            )
        try:
            served = ServedMessage.model_validate(fields)
            if served.tool_calls and served.role != "assistant":
                raise ConfigError(f"{quote(fields)}: only an assistant may have tool_calls")
            extra = read_extra(served, "function_call")
            parts = served.content if isinstance(served.content, list) else [served.content or ""]
            text_parts = [part for part in parts if not isinstance(part, OtherPart)]
            if len(text_parts) < len(parts):
                extra["content"] = fields["content"]
            return cls(
                role="system" if served.role == "developer" else served.role,
                content="\n".join(p if isinstance(p, str) else p.text for p in text_parts),
                tool_calls=read_calls(served.tool_calls or ()),
                tool_call_id=served.tool_call_id,
                extra=extra,
            )
        except ValidationError as error:
            raise ConfigError(
                f"{quote(fields)} is not a chat message ({describe_problem(error)}); give a mapping of "
                f"JSON values with a role and a content of text"
            ) from error

    def to_openai(self) -> dict[str, Any]:
        """Returns the message in OpenAI's form, with the required keys and those of `extra`.

        Empty content next to tool calls becomes null, as OpenAI sends it: some gateways reject an empty text there.
        """
        fields: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            fields["content"] = self.content or None
            fields["tool_calls"] = [call.to_openai() for call in self.tool_calls]
        if self.tool_call_id is not None:
            fields["tool_call_id"] = self.tool_call_id
        return fields | self.extra


class Sampling(Options):
    """How tokens are sampled. The defaults are those of the published system at inference."""

    temperature: float = Field(default=0.7, ge=0, allow_inf_nan=False)
    top_p: float = Field(default=0.95, gt=0, le=1)


class ChatRequest(Leaf):
    """One call to a model.

    `kind` and `parts` say what the call is for and from which texts its prompt was made: servers never see them.
    """

    messages: tuple[Message, ...]
    max_tokens: int = Field(gt=0)
    """Maximum tokens to generate."""
    prompt_tokens: int | None = None
    """The sender's token count of the prompt, or an upper bound; None if it didn't count."""
    sampling: Sampling = Sampling()
    seed: int | None = None
    """Seed for the engine's sampler; None leaves it to the engine."""
    thinking: bool | None = None
    """False asks a reasoning model to answer without reasoning; None keeps its default."""
    pattern: str | None = None
    """A regular expression that the whole text must match, if the engine can enforce one; else ignored."""
    stop: tuple[str, ...] = ()
    """Strings that end the reply: the engine stops after the first one, if it can; the reply's reader cuts it there."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools that the model may call through the server's tool-call protocol."""
    tool_choice: Literal["none"] | None = None
    """`none`: the prompt shows the tools, but none may be called."""
    kind: CallKind = "other"
    parts: Mapping[str, str] = Field(default_factory=dict)


class FinishReason(StrEnum):
    """Why a model stopped generating."""

    STOP = "stop"
    """The model ended its turn."""
    LENGTH = "length"
    """`max_tokens` or the window was reached."""
    OTHER = "other"
    """The text was withheld or cut by a filter, so it isn't a reply."""


class TokenIds(Leaf):
    """The exact tokens of one call, if the engine returns them."""

    prompt: tuple[int, ...]
    """P ids, as the engine saw the rendered prompt."""
    sampled: tuple[int, ...]
    """T ids, as sampled."""
    logprobs: tuple[float, ...] | None = None
    """T log-probabilities of the sampled ids, as the engine returns them: vLLM's are those before temperature and top-p
    unless it is started with `--logprobs-mode processed_logprobs`."""


class Usage(Leaf):
    """What calls cost. Retries and repeated calls are counted separately, never in the first four."""

    calls: int = 0
    """Calls whose reply was used (committed)."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that the engine took from its prefix cache."""
    retries: int = 0
    """Calls that failed or whose reply was unusable."""
    retry_tokens: int = 0
    """Prompt and completion tokens of discarded replies."""
    repeated: int = 0
    """Calls that were in flight when a run was killed and were sent again on resume."""
    discarded: int = 0
    """Calls of a read-ahead whose memory was outdated before their turn came."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(**dict(zip(_PARTS, map(add, _parts_of(self), _parts_of(other)), strict=True)))

    def __sub__(self, other: Usage) -> Usage:
        return Usage(**dict(zip(_PARTS, map(sub, _parts_of(self), _parts_of(other)), strict=True)))


_PARTS = tuple(Usage.model_fields)
_parts_of = attrgetter(*_PARTS)


class Failure(Leaf):
    """One failed attempt that a retry recovered from."""

    error: Text
    """Class name and message of the error; in a long series the last entry may stand for several, and says so."""
    waited: float
    """Seconds slept before the next attempt."""


class Completion(_Sparse):
    """The reply to one `ChatRequest`."""

    text: Text
    """The reply, without reasoning that the server separated from it."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls that the server parsed from the reply; their source is not in `text`."""
    reasoning: Text = ""
    """Reasoning that came in a separate field (`reasoning`, `reasoning_content`)."""
    extra: Extra = Field(default_factory=dict)
    """Other fields of the reply's message, for `extra` of the assistant's message: a server may need them back."""
    finish_reason: FinishReason = FinishReason.STOP
    usage: Usage = Usage(calls=1)
    tokens: TokenIds | None = None
    failures: tuple[Failure, ...] = ()
    """Attempts that failed before this reply; `usage.retries` counts them."""
