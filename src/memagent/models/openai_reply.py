"""Reads the bodies of chat completions and model lists, whichever server they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import (
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from memagent.errors import BadResponse, NoReply, ServerFailed
from memagent.messages import (
    ChatRequest,
    Completion,
    FinishReason,
    ServedCall,
    TokenIds,
    ToolCall,
    Usage,
    read_calls,
    read_extra,
)
from memagent.models.openai_errors import Endpoint, server_message

_LENGTH = {"length", "max_tokens"}
_WITHHELD = {"content_filter", "safety", "recitation", "blocklist", "prohibited_content", "refusal"}
"""Reasons that say the text is not what the model would have said (OpenAI, Gemini, Anthropic gateways). Any
other reason is an ordinary end of turn: servers name it `stop`, `eos_token`, `end_turn`, or not at all."""
_BROKEN_OFF = {"abort", "error"}
"""vLLM and SGLang report a generation that the engine gave up on with status 200 and one of these."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow")

    type: str = "text"
    text: str = ""


class _Said(BaseModel):
    model_config = ConfigDict(extra="allow")

    content: str | list[_Part] | None = None
    tool_calls: list[ServedCall] | None = None
    refusal: _Name = None


class _LogProb(BaseModel):
    logprob: float


class _LogProbs(BaseModel):
    content: list[_LogProb] | None = None


class _Choice(BaseModel):
    message: _Said
    finish_reason: str | None = None
    logprobs: _LogProbs | None = None
    token_ids: tuple[int, ...] | None = None
    """vLLM: as sampled."""
    response_token_ids: tuple[int, ...] | None = None
    """SGLang: as sampled."""
    prompt_token_ids: tuple[int, ...] | None = None
    """SGLang."""


def _or_none(value: object, read: ValidatorFunctionWrapHandler) -> object:
    """What is not as it should be counts as left out."""
    try:
        return read(value)
    except ValidationError:
        return None


_Lenient = WrapValidator(_or_none)
_Count = Annotated[Annotated[int, Field(strict=True, ge=0)] | None, _Lenient]
_Window = Annotated[Annotated[int, Field(strict=True, gt=0)] | None, _Lenient]
_Name = Annotated[str | None, _Lenient]


class _Reply(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    prompt_token_ids: tuple[int, ...] | None = None
    """vLLM."""
    prompt_tokens: _Count = Field(None, validation_alias=AliasPath("usage", "prompt_tokens"))
    completion_tokens: _Count = Field(
        None, validation_alias=AliasPath("usage", "completion_tokens")
    )
    cached_tokens: _Count = Field(
        None, validation_alias=AliasPath("usage", "prompt_tokens_details", "cached_tokens")
    )
    cache_n: _Count = Field(None, validation_alias=AliasPath("timings", "cache_n"))
    """llama-server's count of cached prompt tokens."""


class ServedModel(BaseModel):
    """One entry of a server's model list."""

    id: str
    owned_by: _Name = None
    """Gives vLLM and SGLang away."""
    max_model_len: _Window = None
    """vLLM, SGLang."""
    context_length: _Window = None
    """Several gateways."""
    n_ctx: _Window = Field(None, validation_alias=AliasPath("meta", "n_ctx"))
    """llama-server."""
    parent: _Name = None
    """vLLM: the model that a LoRA adapter belongs to; adapters have no length of their own."""

    @property
    def window(self) -> int | None:
        """Most tokens of prompt plus output, None where the server does not say."""
        return self.max_model_len or self.n_ctx or self.context_length


class _Listing(BaseModel):
    data: list[ServedModel]


_Bare = Annotated[list[ServedModel], Field(min_length=1)]
"""As a few gateways send it."""
_listing: TypeAdapter[_Listing | list[ServedModel]] = TypeAdapter(_Listing | _Bare)
_anything: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def read_completion(body: bytes, endpoint: Endpoint, request: ChatRequest) -> Completion:
    """A `Completion` from a reply's body. Empty content is an empty text: the agent decides on it.

    Tool calls are read as `read_calls` does.

    Args:
        body: what the server sent.
        endpoint: who sent it.
        request: what was asked.

    Raises:
        NoReply: there is no text, but a refusal, or calls though the request has no tools.
        BadResponse: not JSON, or no chat completion in it.
        ServerFailed: the engine broke the generation off.
    """
    try:
        reply = _Reply.model_validate_json(body)
    except ValidationError as error:
        raise BadResponse(
            f"{endpoint}: the reply is no chat completion: {_excerpt(body, endpoint)}; "
            f"does the base URL lead to an OpenAI-compatible server?"
        ) from endpoint.cause(error)
    choice = reply.choices[0]
    if choice.finish_reason in _BROKEN_OFF:
        raise ServerFailed(
            f"{endpoint}: the engine broke the reply off (finish_reason {choice.finish_reason!r}); "
            f"its log says more"
        )
    said = choice.message
    extra = read_extra(said, "role")
    if isinstance(said.content, list) and any(part.type != "text" for part in said.content):
        extra["content"] = [part.model_dump(exclude_unset=True) for part in said.content]
    reasoning = (extra.get("reasoning"), extra.get("reasoning_content"))
    calls = read_calls(said.tool_calls or ())
    parts = said.content if isinstance(said.content, list) else [_Part(text=said.content or "")]
    text = "".join(part.text for part in parts)
    if not text.strip():
        _refuse_silence(said.refusal, () if request.tools else calls, endpoint)
    return Completion(
        text=text,
        tool_calls=calls,
        reasoning=next((text for text in reasoning if isinstance(text, str) and text), ""),
        extra=extra,
        finish_reason=_finish(choice.finish_reason),
        usage=Usage(
            calls=1,
            prompt_tokens=reply.prompt_tokens or 0,
            completion_tokens=reply.completion_tokens or 0,
            cached_tokens=(reply.cache_n if reply.cached_tokens is None else reply.cached_tokens)
            or 0,
        ),
        tokens=_tokens(reply),
    )


def _refuse_silence(refusal: str | None, calls: Sequence[ToolCall], endpoint: Endpoint) -> None:
    """Asking again would be paid for, and answered the same."""
    if refusal:
        raise NoReply(f"{endpoint}: the model refuses: {endpoint.quote(refusal)!r}")
    if calls:
        said = ", ".join(f"{call.name}({call.arguments})" for call in calls)
        raise NoReply(
            f"{endpoint}: the model says nothing and calls a tool, though it was given none: "
            f"{endpoint.quote(said)!r}; switch off what the server reads calls with, or use another model"
        )


def _tokens(reply: _Reply) -> TokenIds | None:
    """Both kinds of ids, None unless the server sent both."""
    choice = reply.choices[0]
    prompt = reply.prompt_token_ids or choice.prompt_token_ids
    sampled = choice.token_ids if choice.token_ids is not None else choice.response_token_ids
    if prompt is None or sampled is None:
        return None
    entries = choice.logprobs.content if choice.logprobs is not None else None
    logprobs = None if entries is None else tuple(entry.logprob for entry in entries)
    # Where the engine leaves out the end of the turn in one of them, they do not belong together.
    whole = logprobs is not None and len(logprobs) == len(sampled)
    return TokenIds(prompt=prompt, sampled=sampled, logprobs=logprobs if whole else None)


def _finish(reason: str | None) -> FinishReason:
    reason = (reason or "stop").lower()
    if reason in _LENGTH:
        return FinishReason.LENGTH
    return FinishReason.OTHER if reason in _WITHHELD else FinishReason.STOP


def read_models(body: bytes, endpoint: Endpoint) -> tuple[ServedModel, ...]:
    """The models that a server lists; a `BadResponse` where the body is no list."""
    try:
        listed = _listing.validate_json(body)
        return tuple(listed if isinstance(listed, list) else listed.data)
    except ValidationError as error:
        raise BadResponse(
            f"{endpoint}: the reply to GET /models is no list of models: {_excerpt(body, endpoint)}; "
            f"does the base URL lead to an OpenAI-compatible server?"
        ) from endpoint.cause(error)


def served_window(model: str, listed: Sequence[ServedModel]) -> int | None:
    """The window of a model in a server's list, None where the list does not say."""
    by_id = {entry.id: entry for entry in listed}
    entry = by_id.get(model)
    if entry is None:
        # llama-server answers to any name: where only one model is served, it is that one.
        return listed[0].window if len(listed) == 1 else None
    parent = by_id.get(entry.parent) if entry.parent is not None else None
    return entry.window or (parent.window if parent is not None else None)


def _excerpt(body: bytes, endpoint: Endpoint) -> str:
    try:
        words = server_message(_anything.validate_json(body))
    except ValidationError:
        words = body.decode("utf-8", errors="replace")
    return repr(endpoint.quote(words))
