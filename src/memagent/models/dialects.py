"""What each kind of server supports beyond the common subset, and what a particular server rejects."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from memagent.messages import ChatRequest, Message
from memagent.models.openai_errors import CLIP, Endpoint, is_refusal, overflows, server_message
from memagent.texts import read_object

if TYPE_CHECKING:
    import openai

logger = logging.getLogger("memagent")

DialectName = Literal["plain", "openai", "vllm", "sglang", "llamacpp", "ollama"]

Fields = Mapping[str, object]
"""Fields of a request's body."""
TEMPLATE_KWARGS = "chat_template_kwargs"


@dataclass(frozen=True)
class Speculation:
    """How a kind of server reports speculative decoding: regular expressions to search a page for."""

    path: str
    """The page's path, from the server's root."""
    on: str
    """Matches if speculation is on; a group in it captures the method."""
    off: str
    """Matches if it is off, and perhaps also if it is on."""
    flags: str
    """Command-line arguments that start the server with n-gram speculation."""
    wrong: str = r"(?!)"
    """Matches if n-gram speculation is known to change replies."""
    warning: str = ""


@dataclass(frozen=True, eq=False)
class Dialect:
    """How to talk to one kind of server. The defaults are what every server supports."""

    name: DialectName
    engine: bool = False
    """Its models are `owned_by` its name, which identifies it. Counts tokens and accepts
    `chat_template_kwargs`, which some other servers reject with a 422."""
    token_ids: bool = False
    """Returns token ids and log-probabilities on request."""
    limit: str = "max_tokens"
    """The field for the maximum tokens to generate."""
    version: tuple[str, str] | None = None
    """Path (from the server's root) and key of its version."""
    speculation: Speculation | None = None
    pattern: Callable[[str], Fields] | None = None
    """Makes the fields that constrain the reply to a regular expression; None if it can't."""
    continues: Fields = field(default_factory=dict[str, object])
    """Fields that make it continue a final assistant message; empty if it can't."""
    any_name: bool = False
    """Accepts any model name for its single model, so only its list reveals a wrong name."""

    def fields(self, request: ChatRequest, *, tokens: bool) -> dict[str, object]:
        """Makes a request's fields besides its messages; `tokens` asks for ids and log-probabilities."""
        fields: dict[str, object] = {self.limit: request.max_tokens, **dict(request.sampling)}
        if request.seed is not None:
            fields["seed"] = request.seed
        if request.stop:
            fields["stop"] = list(request.stop)
        if request.thinking is not None and self.engine:
            fields[TEMPLATE_KWARGS] = {"enable_thinking": request.thinking}
        if request.pattern is not None and self.pattern is not None:
            fields |= self.pattern(request.pattern)
        if request.messages[-1].role == "assistant":
            fields |= self.continues
        if tokens and self.token_ids:
            fields |= {"return_token_ids": True, "logprobs": True}
        if request.tools:
            fields["tools"] = [tool.to_openai() for tool in request.tools]
            if request.tool_choice is not None:
                fields["tool_choice"] = request.tool_choice
        return fields


DIALECTS: dict[DialectName, Dialect] = {
    # LM Studio, TGI, transformers serve, gateways: the fields that all of them support.
    "plain": Dialect("plain"),
    # Checked with b11549. (Its /props says "none" even if it speculates: llama.cpp PR 28119, open in August 2026.)
    "llamacpp": Dialect(
        "llamacpp",
        engine=True,
        speculation=Speculation(
            path="/slots",
            on=r'"speculative":\s*true',
            off=r'"speculative":\s*false',
            flags="--spec-type ngram-mod",
        ),
    ),
    # `memagent_engines.ollama` rewrites these requests for /api/chat.
    "ollama": Dialect("ollama", version=("/api/version", "version")),
    # The OpenAI API rejects `max_tokens` for its newer models.
    "openai": Dialect("openai", limit="max_completion_tokens"),
    # Checked with 0.32.
    "vllm": Dialect(
        "vllm",
        engine=True,
        token_ids=True,
        version=("/version", "version"),
        speculation=Speculation(
            path="/metrics",
            on=r"(?m)^vllm:spec_decode_num_drafts",
            off=r"(?m)^vllm:",
            flags="""--speculative-config '{"method":"ngram","num_speculative_tokens":16,"""
            """"prompt_lookup_min":2,"prompt_lookup_max":5}'""",
            wrong=r'mamba_block_size="\d',
            warning="vLLM's n-gram speculation gave wrong replies with hybrid models, and this is one "
            "(vllm issue 39273)",
        ),
        pattern=lambda regex: {"structured_outputs": {"regex": regex}},
        continues={"add_generation_prompt": False, "continue_final_message": True},
    ),
    # Checked with 0.5.23.
    "sglang": Dialect(
        "sglang",
        engine=True,
        token_ids=True,
        version=("/server_info", "version"),
        speculation=Speculation(
            path="/server_info",
            on=r'"speculative_algorithm":\s*"([^"]+)"',
            off=r'"speculative_algorithm":\s*null',
            flags="--speculative-algorithm NGRAM",
        ),
        pattern=lambda regex: {"regex": regex},
        continues={"continue_final_message": True},
        any_name=True,
    ),
}
"""The known dialects, by name. A server that can't be identified gets the plain one."""


def merge_fields(fields: Fields, extra: Fields) -> dict[str, object]:
    """Merges the fields with those of `extra_body`, which win; chat template arguments are merged key by key."""
    pair: list[Any] = [fields.get(TEMPLATE_KWARGS), extra.get(TEMPLATE_KWARGS)]
    kwargs = {TEMPLATE_KWARGS: pair[0] | pair[1]} if all(isinstance(b, dict) for b in pair) else {}
    return {**fields, **extra, **kwargs}


def write_message(message: Message) -> dict[str, Any]:
    """Writes a message for a request's body.

    Arguments are sent as strict JSON, and those that aren't an object as an empty one: SGLang and llama-server would
    reject the whole conversation, and vLLM shows the model an empty one too. The call's result says why it was refused.
    """
    fields = message.to_openai()
    for call, form in zip(message.tool_calls, fields.get("tool_calls", ()), strict=False):
        values = call.values()
        if read_object(call.arguments, str, strict=True) != values:
            form["function"]["arguments"] = json.dumps(values, ensure_ascii=False)
    return fields


OTHER_LIMIT = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""The two names for the maximum tokens to generate: new models take one, old servers the other."""
_CHANGED: dict[str, str | None] = {
    **OTHER_LIMIT,
    "seed": None,
    "top_p": None,  # before the temperature: some models take either, and name both
    "temperature": None,
}
_REFUSAL = re.compile(
    r"unsupported|not support|unrecogni[sz]ed|unknown|unexpected|not (permitted|allowed|accepted)"
    r"|extra (inputs|fields)|cannot both|only the default|deprecated",
    re.IGNORECASE,
)
"""How servers say that this model doesn't accept a parameter, or only its default; a bad value is the user's to fix."""


class Parameters:
    """What a particular server was found to reject."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._changed: dict[str, str | None] = {}

    def adapt(self, fields: Mapping[str, object]) -> dict[str, object]:
        """Adapts a request's fields to this server."""
        names = {name: self._changed.get(name, name) for name in fields}
        return {new_name: fields[name] for name, new_name in names.items() if new_name is not None}

    def learn(self, error: openai.APIError, sent: Mapping[str, object]) -> bool:
        """Notes which of the (adapted) fields `sent` was rejected; returns whether to retry without it."""
        words = server_message(error.body)[:CLIP]
        match = _REFUSAL.search(f"{words} {error.code}")
        if not is_refusal(error) or match is None or overflows(error):
            return False
        mentions = [n for n in _CHANGED if n in sent and re.search(rf"\b{n}\b", words)]
        name = next(iter([n for n in _CHANGED if n == error.param] or mentions), None)
        if name is None or name not in sent:
            return False
        new_name = _CHANGED[name]
        if new_name in sent or new_name in self._changed:  # it accepts neither name
            return False
        if name not in self._changed:
            self._changed[name] = new_name
            logger.warning(
                "%s: rejects %s=%r (%s): it will be %s from now on",
                *(self._endpoint, name, sent[name], self._endpoint.quote(words)),
                "left out" if new_name is None else f"sent as {new_name}",
            )
        return True
