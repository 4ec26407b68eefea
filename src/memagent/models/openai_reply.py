"""Parses the bodies of chat completions and model lists from any server."""

from __future__ import annotations

import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from memagent.errors import BadResponse, NoReply, ServerFailed
from memagent.messages import ChatRequest, Completion, FinishReason, TokenIds, Usage, read_calls
from memagent.models.openai_errors import Endpoint, server_message, translate
from memagent.served import OtherPart, ServedCall, TextPart, read_extra
from memagent.texts import map_texts, repair_surrogates

if TYPE_CHECKING:
    import openai

T = TypeVar("T")

_WITHHELD = ("content_filter", "safety", "recitation", "blocklist", "prohibited_content", "refusal")
"""Finish reasons of filtered texts (OpenAI, Gemini, Anthropic gateways)."""
FINISH: dict[str, FinishReason] = {
    **dict.fromkeys(("length", "max_tokens", "model_length"), FinishReason.LENGTH),
    **dict.fromkeys(_WITHHELD, FinishReason.OTHER),
}
"""Any other reason is an ordinary end of turn: servers call it `stop`, `eos_token`, `end_turn`, or leave it out."""
BROKEN_OFF = {"abort", "error", "insufficient_system_resource", "time_limit", "cancelled"}
"""vLLM, SGLang, DeepSeek and watsonx report an aborted generation with status 200 and one of these."""


def _read_leniently(value: object, read: ValidatorFunctionWrapHandler) -> object:
    try:
        return read(value)
    except ValidationError:
        return None


_lenient = WrapValidator(_read_leniently)
"""Malformed fields count as missing."""
_Name = Annotated[str | None, _lenient]
_Count = Annotated[Annotated[int, Field(strict=True, ge=0, lt=2**31)] | None, _lenient]
"""Larger figures are as impossible as negative ones, and a store couldn't add them up."""
_Window = Annotated[Annotated[int, Field(strict=True, gt=0)] | None, _lenient]


class _ReplyMessage(BaseModel, extra="allow"):
    content: str | list[TextPart | OtherPart] | None = None
    tool_calls: list[ServedCall] | None = None
    refusal: _Name = None


class _LogProb(BaseModel):
    logprob: float


def _first(*path: str) -> AliasPath:
    """Returns the path of a field in the first choice."""
    return AliasPath("choices", 0, *path)


class _Reply(BaseModel):
    message: _ReplyMessage = Field(validation_alias=_first("message"))
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


class _ErrorReply(BaseModel):
    error: JsonValue
    code: int = Field(
        ge=400, lt=600, validation_alias=AliasChoices(AliasPath("error", "code"), "code")
    )


class ServedModel(BaseModel):
    """One entry of a server's model list."""

    id: str
    owned_by: _Name = None
    """Identifies vLLM and SGLang."""
    max_model_len: _Window = None
    """Reported by vLLM and SGLang."""
    context_length: _Window = None
    """Reported by several gateways."""
    loaded_context_length: _Window = None
    """Reported by LM Studio, in its own list."""
    n_ctx: _Window = Field(None, validation_alias=AliasPath("meta", "n_ctx"))
    """Reported by llama-server."""
    parent: _Name = None
    """vLLM: the model that a LoRA adapter belongs to; adapters list no length."""

    @property
    def window(self) -> int | None:
        """Maximum tokens of prompt plus output; None if the server doesn't report it."""
        return self.max_model_len or self.n_ctx or self.context_length or self.loaded_context_length


class _Listing(BaseModel):
    data: list[ServedModel]


_Bare = Annotated[list[ServedModel], Field(min_length=1)]
"""The list without an object around it, as a few gateways send it."""
_listing: TypeAdapter[_Listing | list[ServedModel]] = TypeAdapter(_Listing | _Bare)
_anything: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)
_reply, _failed = TypeAdapter(_Reply), TypeAdapter(_ErrorReply)


def _parse(form: TypeAdapter[T], body: bytes) -> T:
    """Reads JSON, with U+FFFD for lone surrogates, which pydantic rejects. Raises a `ValidationError`."""
    try:
        return form.validate_json(body)
    except ValidationError as error:
        try:
            return form.validate_python(map_texts(json.loads(body), repair_surrogates))
        except (ValueError, RecursionError):
            raise error from None


def read_completion(body: bytes, endpoint: Endpoint, request: ChatRequest) -> Completion:
    """Reads the body of a reply to `request`. Empty content becomes an empty text; the agent handles it.

    Raises:
        NoReply: there is a refusal instead of text, or calls although the request has no tools.
        BadResponse: it is not JSON or not a chat completion.
        ServerFailed: the engine aborted the generation.
    """
    try:
        reply = _parse(_reply, body)
    except ValidationError as error:
        if (failure := _failure(body)) is not None:
            raise translate(failure, endpoint) from endpoint.cause(error)
        raise BadResponse(
            f"{endpoint}: the reply is not a chat completion: {_excerpt(body, endpoint)}; "
            f"is the base URL that of an OpenAI-compatible server?"
        ) from endpoint.cause(error)
    finish = (reply.finish_reason or "").lower()
    if finish in BROKEN_OFF:
        raise ServerFailed(
            f"{endpoint}: the engine aborted the reply (finish_reason {reply.finish_reason!r}); see its log"
        )
    turn = reply.message
    extra = read_extra(turn, "role")
    parts = turn.content if isinstance(turn.content, list) else [TextPart(text=turn.content or "")]
    if any(isinstance(part, OtherPart) for part in parts):
        extra["content"] = [part.model_dump(exclude_unset=True) for part in parts]
    reasoning = (extra.get("reasoning"), extra.get("reasoning_content"))
    calls = read_calls(turn.tool_calls or ())
    text = "".join(part.text for part in parts if isinstance(part, TextPart))
    # Asking again would cost money and get the same answer.
    if not text.strip() and turn.refusal:
        raise NoReply(f"{endpoint}: the model refuses: {endpoint.quote(turn.refusal)!r}")
    if not text.strip() and calls and not request.tools:
        call_list = ", ".join(f"{call.name}({call.arguments})" for call in calls)
        raise NoReply(
            f"{endpoint}: the reply has no text but calls a tool, although none was offered: "
            f"{endpoint.quote(call_list)!r}; switch off the server's tool-call parser, or use another model"
        )
    return Completion(
        text=text,
        tool_calls=calls,
        reasoning=next((text for text in reasoning if isinstance(text, str) and text), ""),
        extra=extra,
        finish_reason=FINISH.get(finish, FinishReason.STOP),
        usage=Usage(
            calls=1,
            prompt_tokens=reply.prompt_tokens or 0,
            completion_tokens=reply.completion_tokens or 0,
            cached_tokens=reply.cached_tokens or 0,
        ),
        tokens=_tokens(reply),
    )


def _failure(body: bytes) -> openai.APIStatusError | None:
    """Returns the error that a gateway reports with status 200 (OpenRouter's form), as if its code were the status."""
    import openai

    try:
        failure = _parse(_failed, body)
    except ValidationError:
        return None
    response: Any = SimpleNamespace(status_code=failure.code, headers={}, request=None)
    return openai.APIStatusError("", response=response, body=failure.error)


def _tokens(reply: _Reply) -> TokenIds | None:
    """Returns prompt and sampled ids; None unless the server sent both."""
    if reply.prompt is None or reply.sampled is None:
        return None
    logprobs = tuple(entry.logprob for entry in reply.logprobs or ())
    # If the engine leaves the end-of-turn token out of one of them, they don't match.
    complete = reply.logprobs is not None and len(logprobs) == len(reply.sampled)
    scores = logprobs if complete else None
    return TokenIds(prompt=reply.prompt, sampled=reply.sampled, logprobs=scores)


def read_models(body: bytes, endpoint: Endpoint) -> tuple[ServedModel, ...]:
    """Reads the models that a server lists. Raises a `BadResponse` if the body isn't a list."""
    try:
        listing = _parse(_listing, body)
    except ValidationError as error:
        failure = BadResponse(
            f"{endpoint}: the reply to GET /models is not a list of models: {_excerpt(body, endpoint)}; "
            f"is the base URL that of an OpenAI-compatible server?"
        )
        failure.retryable = False  # it is some other page, and would be again
        raise failure from endpoint.cause(error)
    return tuple(listing if isinstance(listing, list) else listing.data)


def served_window(model: str, listed: Sequence[ServedModel]) -> int | None:
    """Finds a model's window in a server's list; None if the list doesn't report it."""
    entries = {entry.id: entry for entry in listed}
    entry = entries.get(model)
    if entry is None:
        # llama-server accepts any name: if it serves only one model, that is the one.
        return listed[0].window if len(listed) == 1 else None
    parent = entries.get(entry.parent or "")
    return entry.window or (parent.window if parent else None)


def _excerpt(body: bytes, endpoint: Endpoint) -> str:
    try:
        words = server_message(_parse(_anything, body))
    except ValidationError:
        words = body.decode("utf-8", errors="replace")
    return repr(endpoint.quote(words))
