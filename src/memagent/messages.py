"""What goes to a model and what comes back: the types of the one seam, `ChatModel`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
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
from memagent.texts import Extra, Text, describe_problem, quote

_SPARSE = ("tool_calls", "tool_call_id", "extra")

Role = Literal["system", "user", "assistant", "tool"]
CallKind = Literal["update", "answer", "act", "summary", "other"]


class Leaf(BaseModel):
    """Base of the value types: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Options(Leaf):
    """Base of what users construct: a bad or unknown value is a ConfigError."""

    if not TYPE_CHECKING:  # type checkers know the fields

        def __init__(self, **fields: Any) -> None:
            try:
                super().__init__(**fields)
            except ValidationError as error:
                raise ConfigError(describe_problem(error)) from error

        # Without it, pydantic would call `__init__` for nested values too, and could not name their place.
        __init__.__pydantic_base_init__ = True


class _Sparse(Leaf):
    """What only tool sessions have is left out of the serialised form where it is empty."""

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
    """A model's wish that a tool be run."""

    id: Text
    """What the result names it by."""
    name: Text
    arguments: Text
    """JSON as the model wrote it: it may be malformed."""
    extra: Extra = Field(default_factory=dict)
    """Other fields of the call, which its server may want back (Gemini's `extra_content`)."""

    def values(self) -> dict[str, JsonValue]:
        """The arguments as chat templates take them, empty where they are no JSON object: vLLM reads them so too."""
        try:
            found: object = json.loads(self.arguments)
            # Half surrogate pairs fail here, and numbers that are none in JSON.
            json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}  # pyright: ignore[reportUnknownVariableType]

    def to_openai(self) -> dict[str, Any]:
        """As an element of a message's `tool_calls`."""
        function = {"name": self.name, "arguments": self.arguments}
        return {**self.extra, "id": self.id, "type": "function", "function": function}


class ToolSpec(Leaf):
    """A tool as a model sees it."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = ""
    parameters: Mapping[str, JsonValue] = Field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    """JSON schema of the arguments, an object."""

    def to_openai(self) -> dict[str, Any]:
        """As an element of a request's `tools`. The description is there even if empty: templates write what it is."""
        return {"type": "function", "function": dict(self) | {"parameters": dict(self.parameters)}}


class ServedFunction(BaseModel):
    """What a served call wants run."""

    name: str = Field(min_length=1)
    arguments: str | dict[str, JsonValue] | None = None
    """JSON, or what it stands for: a few servers send the object itself."""


class ServedCall(BaseModel):
    """A tool call as OpenAI-compatible servers send it, fairly or not."""

    model_config = ConfigDict(extra="allow")

    id: str | None = None
    function: ServedFunction


def read_extra(served: BaseModel, *read: str) -> dict[str, JsonValue]:
    """Reads the fields of a message or call that its type does not declare. Empty ones are left out.

    Args:
        served: of a type that allows other fields.
        read: names of those that say nothing more.
    """
    extra: dict[str, Any] = served.model_extra or {}
    others = {name: v for name, v in extra.items() if name not in read}
    # Numbers say something even if they are 0.
    return {name: v for name, v in others.items() if v or isinstance(v, (int, float))}


def read_calls(served: Iterable[ServedCall]) -> tuple[ToolCall, ...]:
    """The calls of one message. One whose id is missing, or was an earlier one's, gets an id by its place.

    Calls without arguments (none, an empty text) get an empty object.
    """
    calls: list[ToolCall] = []
    taken: set[str] = set()
    for place, call in enumerate(served):
        # Nine letters and digits: Mistral's templates take no other ids.
        ids = (f"call{number:05d}" for number in range(place, place + len(taken) + 1))
        unused = next(name for name in ids if name not in taken)
        name = call.id if call.id and call.id not in taken else unused
        taken.add(name)
        given = call.function.arguments or {}
        text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        extra = read_extra(call, "type", "index")
        calls.append(ToolCall(id=name, name=call.function.name, arguments=text, extra=extra))
    return tuple(calls)


class _Part(BaseModel):
    type: Literal["text", "input_text", "output_text"] = "text"
    text: str


class _OtherPart(BaseModel):
    type: str


class _ServedMessage(BaseModel):
    model_config = ConfigDict(extra="allow")

    role: Role | Literal["developer"]
    content: str | list[str | _Part | _OtherPart] | None = None
    tool_calls: list[ServedCall] | None = None
    tool_call_id: str | None = None


class Message(_Sparse):
    """One message of a conversation."""

    role: Role
    content: Text
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant: the tools that it wants run, in order."""
    tool_call_id: Text | None = None
    """Of a tool: the call that this is the result of."""
    extra: Extra = Field(default_factory=dict)
    """Other fields, which the server may want back (DeepSeek's `reasoning_content`). A `content` here goes in the place
    of the text: parts that are more than texts."""

    @classmethod
    def from_openai(cls, fields: Mapping[str, Any] | Message) -> Message:
        """Reads a message in OpenAI's form, a request's or a reply's; a `Message` is itself.

        Other fields (`name`, `reasoning_content`) go into `extra` unless they are empty, a `developer` is a `system`,
        text parts become lines, and no content is an empty one. Calls are read as `read_calls` does.

        Raises:
            ConfigError: it is no such message, or holds what is no text, or a `function_call`.
        """
        if isinstance(fields, Message):
            return fields
        if hasattr(fields, "model_dump"):
            raise ConfigError(f"{quote(fields)} is an object: give message.model_dump()")
        if isinstance(fields, Mapping) and fields.get("function_call") is not None:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"{quote(fields)}: a function_call is the old form of a call, which has no id; use tool_calls"
            )
        try:
            served = _ServedMessage.model_validate(fields)
        except ValidationError as error:
            raise ConfigError(
                f"{quote(fields)} is not a chat message ({describe_problem(error)}); give a mapping with a "
                f"role and a content of text"
            ) from error
        if served.tool_calls and served.role != "assistant":
            raise ConfigError(f"{quote(fields)}: tool_calls are only an assistant's to make")
        extra = read_extra(served, "function_call")
        parts = served.content if isinstance(served.content, list) else [served.content or ""]
        if other := next((part for part in parts if isinstance(part, _OtherPart)), None):
            if served.role != "assistant":
                raise ConfigError(
                    f"{quote(fields)}: content of type {other.type!r} is not supported; give texts"
                )
            extra["content"] = fields["content"]
        texts = [part if isinstance(part, str) else getattr(part, "text", None) for part in parts]
        return cls(
            role="system" if served.role == "developer" else served.role,
            content="\n".join(text for text in texts if text is not None),
            tool_calls=read_calls(served.tool_calls or ()),
            tool_call_id=served.tool_call_id,
            extra=extra,
        )

    def to_openai(self) -> dict[str, Any]:
        """The message in OpenAI's form, with the keys that it needs and those of `extra`.

        Content that is empty beside tool calls is null, as OpenAI sends it: some gateways refuse an empty text there.
        """
        fields: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            fields["content"] = self.content or None
            fields["tool_calls"] = [call.to_openai() for call in self.tool_calls]
        if self.tool_call_id is not None:
            fields["tool_call_id"] = self.tool_call_id
        return fields | self.extra


class Sampling(Options):
    """How tokens are drawn. The defaults are those of the published system at inference."""

    temperature: float = Field(default=0.7, ge=0, allow_inf_nan=False)
    top_p: float = Field(default=0.95, gt=0, le=1)


class ChatRequest(Leaf):
    """One call to a model.

    `kind` and `parts` say what the call is for and from which texts its prompt was made: servers never see them.
    """

    messages: tuple[Message, ...]
    max_tokens: int = Field(gt=0)
    """Most tokens that may be generated."""
    prompt_tokens: int | None = None
    """What the sender counted the prompt as, or an upper bound; None where it did not count."""
    sampling: Sampling = Sampling()
    seed: int | None = None
    """Seed for the engine's sampler; None leaves it to the engine."""
    thinking: bool | None = None
    """False asks a reasoning model to answer without reasoning; None leaves its default."""
    pattern: str | None = None
    """A regular expression that the whole text has to match, where the engine can hold it to one; else ignored."""
    stop: tuple[str, ...] = ()
    """The engine stops behind the first of these strings, where it can; whoever reads the reply cuts it there."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools that the model may call by the server's own means."""
    tool_choice: Literal["none"] | None = None
    """`none`: the prompt shows the tools, and none may be called."""
    kind: CallKind = "other"
    parts: Mapping[str, str] = Field(default_factory=dict)


class FinishReason(StrEnum):
    """Why a model stopped generating."""

    STOP = "stop"
    """The model ended its turn."""
    LENGTH = "length"
    """`max_tokens` or the window was reached."""
    OTHER = "other"
    """The text was withheld or cut by a filter: it is no reply."""


class TokenIds(Leaf):
    """The exact tokens of one call, where the engine gives them."""

    prompt: tuple[int, ...]
    """P ids, as the engine saw the rendered prompt."""
    sampled: tuple[int, ...]
    """T ids, as they were sampled."""
    logprobs: tuple[float, ...] | None = None
    """T log-probabilities of the sampled ids, as the engine gives them: vLLM's are those before temperature and top-p
    unless it is started with `--logprobs-mode processed_logprobs`."""


class Usage(Leaf):
    """What calls cost. Retries and repeated calls are counted apart, never in the first four."""

    calls: int = 0
    """Calls whose reply was used (committed)."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens that the engine took from its prefix cache."""
    retries: int = 0
    """Calls that led to nothing: they failed, or their reply was unusable."""
    retry_tokens: int = 0
    """Prompt and completion tokens of replies that were thrown away."""
    repeated: int = 0
    """Calls that were in flight when a run was killed, and were sent again on resume."""
    discarded: int = 0
    """Calls of a read-ahead whose memory was outdated before their turn came."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(**{n: getattr(self, n) + getattr(other, n) for n in Usage.model_fields})


class Failure(Leaf):
    """One failed attempt that a retry got over."""

    error: str
    """Class name and message of the error; the last one of many may stand for several, and says so."""
    waited: float
    """Seconds slept before the next attempt."""


class Completion(_Sparse):
    """The reply to one `ChatRequest`."""

    text: Text
    """The reply without the reasoning that the server separated from it."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls that the server read from the reply; what it made them of is not in `text`."""
    reasoning: Text = ""
    """Reasoning that came in a field of its own (`reasoning`, `reasoning_content`)."""
    extra: Extra = Field(default_factory=dict)
    """What else the reply's message holds, for the `extra` of the assistant's message: a server may want it back."""
    finish_reason: FinishReason = FinishReason.STOP
    usage: Usage = Usage(calls=1)
    tokens: TokenIds | None = None
    failures: tuple[Failure, ...] = ()
    """Attempts that failed before this reply; `usage.retries` counts them."""
