"""Reads the bodies of chat completions and model lists, whichever server they come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import (
    AliasChoices,
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
    Usage,
    read_calls,
    read_extra,
)
from memagent.models.openai_errors import Endpoint, server_message

_WITHHELD = ("content_filter", "safety", "recitation", "blocklist", "prohibited_content", "refusal")
"""Reasons that say the text is not what the model would have said (OpenAI, Gemini, Anthropic gateways)."""
_FINISH: dict[str, FinishReason] = {
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    **dict.fromkeys(_WITHHELD, FinishReason.OTHER),
}
"""Any other reason is an ordinary end of turn: servers name it `stop`, `eos_token`, `end_turn`, or not at all."""
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


def _first(*path: str) -> AliasPath:
    """A field of the first choice."""
    return AliasPath("choices", 0, *path)


def _read_leniently(value: object, read: ValidatorFunctionWrapHandler) -> object:
    try:
        return read(value)
    except ValidationError:
        return None


_lenient = WrapValidator(_read_leniently)
"""What is not as it should be counts as left out."""
_Name = Annotated[str | None, _lenient]
_Count = Annotated[Annotated[int, Field(strict=True, ge=0)] | None, _lenient]
_Window = Annotated[Annotated[int, Field(strict=True, gt=0)] | None, _lenient]


class _Reply(BaseModel):
    message: _Said = Field(validation_alias=_first("message"))
    finish_reason: str | None = Field(None, validation_alias=_first("finish_reason"))
    logprobs: list[_LogProb] | None = Field(None, validation_alias=_first("logprobs", "content"))
    sampled: tuple[int, ...] | None = Field(
        None,  # of vLLM, of SGLang
        validation_alias=AliasChoices(_first("token_ids"), _first("response_token_ids")),
    )
    prompt: tuple[int, ...] | None = Field(
        None,  # of vLLM, of SGLang
        validation_alias=AliasChoices("prompt_token_ids", _first("prompt_token_ids")),
    )
    prompt_tokens: _Count = Field(None, validation_alias=AliasPath("usage", "prompt_tokens"))
    completion_tokens: _Count = Field(
        None, validation_alias=AliasPath("usage", "completion_tokens")
    )
    cached_tokens: _Count = Field(
        None,  # of most servers, of llama-server
        validation_alias=AliasChoices(
            AliasPath("usage", "prompt_tokens_details", "cached_tokens"),
            AliasPath("timings", "cache_n"),
        ),
    )


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
    """A `Completion` from the body of a reply to `request`. Empty content is an empty text: the agent decides on it.

    Raises:
        NoReply: there is no text, but a refusal, or calls though the request has no tools.
        BadResponse: not JSON, or no chat completion in it.
        ServerFailed: the engine broke the generation off.
    """
    try:
        reply = _Reply.model_validate_json(body)
    except ValidationError as error:
        raise BadResponse(
            f"{endpoint}: the reply is not a chat completion: {_excerpt(body, endpoint)}; "
            f"does the base URL lead to an OpenAI-compatible server?"
        ) from endpoint.cause(error)
    if reply.finish_reason in _BROKEN_OFF:
        raise ServerFailed(
            f"{endpoint}: the engine broke the reply off (finish_reason {reply.finish_reason!r}); "
            f"its log says more"
        )
    said = reply.message
    extra = read_extra(said, "role")
    if isinstance(said.content, list) and any(part.type != "text" for part in said.content):
        extra["content"] = [part.model_dump(exclude_unset=True) for part in said.content]
    reasoning = (extra.get("reasoning"), extra.get("reasoning_content"))
    calls = read_calls(said.tool_calls or ())
    parts = said.content if isinstance(said.content, list) else [_Part(text=said.content or "")]
    text = "".join(part.text for part in parts)
    # Asking again would be paid for, and answered the same.
    if not text.strip() and said.refusal:
        raise NoReply(f"{endpoint}: the model refuses: {endpoint.quote(said.refusal)!r}")
    if not text.strip() and calls and not request.tools:
        wanted = ", ".join(f"{call.name}({call.arguments})" for call in calls)
        raise NoReply(
            f"{endpoint}: the model says nothing and calls a tool, though it was given none: "
            f"{endpoint.quote(wanted)!r}; switch off what the server reads calls with, or use another model"
        )
    return Completion(
        text=text,
        tool_calls=calls,
        reasoning=next((text for text in reasoning if isinstance(text, str) and text), ""),
        extra=extra,
        finish_reason=_FINISH.get((reply.finish_reason or "").lower(), FinishReason.STOP),
        usage=Usage(
            calls=1,
            prompt_tokens=reply.prompt_tokens or 0,
            completion_tokens=reply.completion_tokens or 0,
            cached_tokens=reply.cached_tokens or 0,
        ),
        tokens=_tokens(reply),
    )


def _tokens(reply: _Reply) -> TokenIds | None:
    """Both kinds of ids, None unless the server sent both."""
    if reply.prompt is None or reply.sampled is None:
        return None
    logprobs = tuple(entry.logprob for entry in reply.logprobs or ())
    # Where the engine leaves out the end of the turn in one of them, they do not belong together.
    whole = reply.logprobs is not None and len(logprobs) == len(reply.sampled)
    return TokenIds(
        prompt=reply.prompt, sampled=reply.sampled, logprobs=logprobs if whole else None
    )


def read_models(body: bytes, endpoint: Endpoint) -> tuple[ServedModel, ...]:
    """The models that a server lists; a `BadResponse` where the body is no list."""
    try:
        listed = _listing.validate_json(body)
    except ValidationError as error:
        failure = BadResponse(
            f"{endpoint}: the reply to GET /models is not a list of models: {_excerpt(body, endpoint)}; "
            f"does the base URL lead to an OpenAI-compatible server?"
        )
        failure.retryable = False  # it is a page of something else, and will be
        raise failure from endpoint.cause(error)
    return tuple(listed if isinstance(listed, list) else listed.data)


def served_window(model: str, listed: Sequence[ServedModel]) -> int | None:
    """The window of a model in a server's list, None where the list does not say."""
    by_id = {entry.id: entry for entry in listed}
    entry = by_id.get(model)
    if entry is None:
        # llama-server answers to any name: where only one model is served, it is that one.
        return listed[0].window if len(listed) == 1 else None
    parent = by_id.get(entry.parent or "")
    return entry.window or (parent.window if parent else None)


def _excerpt(body: bytes, endpoint: Endpoint) -> str:
    try:
        words = server_message(_anything.validate_json(body))
    except ValidationError:
        words = body.decode("utf-8", errors="replace")
    return repr(endpoint.quote(words))
