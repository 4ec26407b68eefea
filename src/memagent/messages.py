"""What goes to a model and what comes back: the types of the one seam, `ChatModel`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    model_serializer,
)

Role = Literal["system", "user", "assistant", "tool"]
CallKind = Literal["update", "answer", "act", "summary", "other"]


class Leaf(BaseModel):
    """Base of the value types: immutable, unknown fields refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(Leaf):
    """A model's wish that a tool be run."""

    id: str
    """What the result names it by."""
    name: str
    arguments: str
    """JSON as the model wrote it: it may be malformed."""


class ToolSpec(Leaf):
    """A tool as a model sees it."""

    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str = ""
    parameters: Mapping[str, JsonValue] = Field(
        default_factory=lambda: {"type": "object", "properties": {}}
    )
    """JSON schema of the arguments, an object."""


class Message(Leaf):
    """One message of a conversation."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    """Of an assistant: the tools that it wants run, in order."""
    tool_call_id: str | None = None
    """Of a tool: the call that this is the result of."""

    @model_serializer(mode="wrap")
    def _sparse(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # Without what only tool sessions have, so that their like is read by versions that do not know it.
        fields = handler(self)
        if not self.tool_calls:
            fields.pop("tool_calls", None)
        if self.tool_call_id is None:
            fields.pop("tool_call_id", None)
        return fields


class Sampling(Leaf):
    """How tokens are drawn. The defaults are those of the published system at inference."""

    temperature: float = Field(default=0.7, ge=0, allow_inf_nan=False)
    top_p: float = Field(default=0.95, gt=0, le=1)


class ChatRequest(Leaf):
    """One call to a model.

    `kind` and `parts` stand beside the messages: they say what the call is for and from which texts
    its prompt was made. Servers never see them; the embedded `extractive` model reads only them.
    """

    messages: tuple[Message, ...]
    max_tokens: int = Field(gt=0)
    """Most tokens that may be generated."""
    sampling: Sampling = Sampling()
    seed: int | None = None
    """Seed for the engine's sampler; None leaves it to the engine."""
    thinking: bool | None = None
    """False asks a reasoning model to answer without reasoning; None leaves its default."""
    pattern: str | None = None
    """A regular expression that the whole text has to match, where the engine can hold it to one; else ignored."""
    tools: tuple[ToolSpec, ...] = ()
    """Tools that the model may call by the server's own means."""
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

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            calls=self.calls + other.calls,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            retries=self.retries + other.retries,
            retry_tokens=self.retry_tokens + other.retry_tokens,
            repeated=self.repeated + other.repeated,
        )


class Failure(Leaf):
    """One failed attempt that a retry got over."""

    error: str
    """Class name and message of the error; the last one of many may stand for several, and says so."""
    waited: float
    """Seconds slept before the next attempt."""


class Completion(Leaf):
    """The reply to one `ChatRequest`."""

    text: str
    """The reply without the reasoning that the server separated from it."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Calls that the server read from the reply; what it made them of is not in `text`."""
    reasoning: str = ""
    """Reasoning that came in a field of its own (`reasoning`, `reasoning_content`)."""
    finish_reason: FinishReason = FinishReason.STOP
    usage: Usage = Usage(calls=1)
    tokens: TokenIds | None = None
    failures: tuple[Failure, ...] = ()
    """Attempts that failed before this reply; `usage.retries` counts them."""
