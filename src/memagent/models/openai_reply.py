"""Reads the bodies of chat completions and model lists, whichever server they come from."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError

from memagent.errors import BadResponse, ServerFailed
from memagent.messages import (
    Completion,
    FinishReason,
    ServedCall,
    TokenIds,
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


class _Details(BaseModel):
    cached_tokens: int | None = None


class _Counts(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Timings(BaseModel):
    cache_n: int | None = None
    """llama-server's count of cached prompt tokens."""


class _Reply(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: _Counts | None = None
    prompt_token_ids: tuple[int, ...] | None = None
    """vLLM."""
    timings: _Timings | None = None


class _Meta(BaseModel):
    n_ctx: int | None = None


class ServedModel(BaseModel):
    """One entry of a server's model list."""

    id: str
    owned_by: str | None = None
    """Gives vLLM and SGLang away."""
    max_model_len: int | None = None
    """vLLM, SGLang."""
    context_length: int | None = None
    """Several gateways."""
    meta: _Meta | None = None
    """llama-server: `meta.n_ctx`."""
    parent: str | None = None
    """vLLM: the model that a LoRA adapter belongs to; adapters have no length of their own."""

    @property
    def window(self) -> int | None:
        """Most tokens of prompt plus output, None where the server does not say."""
        return self.max_model_len or (self.meta and self.meta.n_ctx) or self.context_length


class _Listing(BaseModel):
    data: list[ServedModel]


_anything: TypeAdapter[JsonValue] = TypeAdapter(JsonValue)


def read_completion(body: bytes, endpoint: Endpoint) -> Completion:
    """A `Completion` from a reply's body. Empty content is an empty text: the agent decides on it.

    Tool calls are read as `read_calls` does.

    Raises:
        BadResponse: not JSON, or no chat completion in it.
        ServerFailed: the engine broke the generation off.
    """
    try:
        reply = _Reply.model_validate_json(body)
    except ValidationError as error:
        raise BadResponse(
            f"{endpoint}: the reply is no chat completion: {_excerpt(body, endpoint)}; "
            f"does the base URL lead to an OpenAI-compatible server?"
        ) from (None if endpoint.leaks(error) else error)
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
    return Completion(
        text=_text(said.content),
        tool_calls=read_calls(said.tool_calls or ()),
        reasoning=next((text for text in reasoning if isinstance(text, str)), ""),
        extra=extra,
        finish_reason=_finish(choice.finish_reason),
        usage=_usage(reply),
        tokens=_tokens(reply),
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
    """The models that a server lists.

    Raises:
        BadResponse: the body is no model list.
    """
    try:
        return tuple(_Listing.model_validate_json(body).data)
    except ValidationError as error:
        raise BadResponse(
            f"{endpoint}: the reply to GET /models is no list of models: {_excerpt(body, endpoint)}; "
            f"does the base URL lead to an OpenAI-compatible server?"
        ) from (None if endpoint.leaks(error) else error)


def served_window(model: str, listed: Sequence[ServedModel]) -> int | None:
    """The window of a model in a server's list, None where the list does not say."""
    by_id = {entry.id: entry for entry in listed}
    entry = by_id.get(model)
    if entry is None:
        # llama-server answers to any name: where only one model is served, it is that one.
        return listed[0].window if len(listed) == 1 else None
    parent = by_id.get(entry.parent) if entry.parent is not None else None
    return entry.window or (parent.window if parent is not None else None)


def _text(content: str | list[_Part] | None) -> str:
    if isinstance(content, list):
        return "".join(part.text for part in content)
    return content or ""


def _usage(reply: _Reply) -> Usage:
    counts = reply.usage or _Counts()
    cached = counts.prompt_tokens_details and counts.prompt_tokens_details.cached_tokens
    if cached is None:
        cached = reply.timings and reply.timings.cache_n
    return Usage(
        calls=1,
        prompt_tokens=counts.prompt_tokens or 0,
        completion_tokens=counts.completion_tokens or 0,
        cached_tokens=cached or 0,
    )


def _excerpt(body: bytes, endpoint: Endpoint) -> str:
    try:
        words = server_message(_anything.validate_json(body))
    except ValidationError:
        words = body.decode("utf-8", errors="replace")
    return repr(endpoint.quote(words))
