"""What each kind of server takes and gives beyond the common ground, and what one server refuses."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from memagent.messages import ChatRequest, Message
from memagent.models.openai_errors import CLIP, Endpoint, is_refusal, overflows, server_message

if TYPE_CHECKING:
    import openai

logger = logging.getLogger("memagent")

DialectName = Literal["plain", "openai", "vllm", "sglang"]

Fields = Mapping[str, object]
"""Fields of a request's body."""
TEMPLATE_KWARGS = "chat_template_kwargs"


@dataclass(frozen=True)
class Speculation:
    """How a kind of server reports speculative decoding: regular expressions to search a page for."""

    path: str
    """The page's, from the server's root."""
    on: str
    """Matches if speculation is on; a group in it captures the method."""
    off: str
    """Matches if it is off, and perhaps also if it is on."""
    flags: str
    """Command-line arguments that start the server with n-gram speculation."""
    wrong: str = r"(?!)"
    """Matches where n-gram speculation is known to change replies."""
    warning: str = ""


@dataclass(frozen=True, eq=False)
class Dialect:
    """How to speak to one kind of server. What is left out is what every server knows."""

    name: DialectName
    engine: bool = False
    """Serves models that are `owned_by` its name, which tells it from others. Counts at `/tokenize`, gives token ids
    and takes `chat_template_kwargs`, an unknown field that is a 422 on some servers."""
    limit: str = "max_tokens"
    """The field for the most tokens that may be generated."""
    version: tuple[str, str] | None = None
    """Path, from the server's root, and key of its version."""
    speculation: Speculation | None = None
    pattern: Callable[[str], Fields] | None = None
    """Holds the reply to a regular expression."""
    continues: Fields = field(default_factory=dict[str, object])
    """Has the reply go on where an assistant's message ends that comes last."""
    any_name: bool = False
    """Answers to every model name with the one model that it has: a wrong name is only seen in its list."""

    def fields(self, request: ChatRequest, *, tokens: bool) -> dict[str, object]:
        """What a request asks for beside its messages; `tokens`: ids and log-probabilities too."""
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
        if tokens and self.engine:
            fields |= {"return_token_ids": True, "logprobs": True}
        if request.tools:
            fields["tools"] = [tool.to_openai() for tool in request.tools]
            if request.tool_choice is not None:
                fields["tool_choice"] = request.tool_choice
        return fields


DIALECTS: dict[DialectName, Dialect] = {
    # llama-server, Ollama, TGI, gateways: the fields that all of them know. Only llama-server has /slots. (Its /props
    # says "none" even where it speculates: llama.cpp pull request 28119, open in August 2026.)
    "plain": Dialect(
        "plain",
        speculation=Speculation(
            path="/slots",
            on=r'"speculative":\s*true',
            off=r'"speculative":\s*false',
            flags="--spec-type ngram-mod",
        ),
    ),
    # The OpenAI API refuses `max_tokens` for its newer models.
    "openai": Dialect("openai", limit="max_completion_tokens"),
    # Checked with 0.32.
    "vllm": Dialect(
        "vllm",
        engine=True,
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
"""All that are known, by name. A server that gives none of them away is spoken to plainly."""


def find_by_owner(owner: str | None) -> Dialect | None:
    """The dialect of a server whose models are `owned_by` somebody, None where that says nothing."""
    return next((d for d in DIALECTS.values() if d.engine and d.name == owner), None)


def merge_fields(fields: Fields, extra: Fields) -> dict[str, object]:
    """The fields with those of `extra_body`, which win; what both say to the chat template is joined."""
    both: list[Any] = [fields.get(TEMPLATE_KWARGS), extra.get(TEMPLATE_KWARGS)]
    joined = {TEMPLATE_KWARGS: both[0] | both[1]} if all(isinstance(b, dict) for b in both) else {}
    return {**fields, **extra, **joined}


def write_message(message: Message) -> dict[str, Any]:
    """A message of a request's body.

    Arguments that are no JSON object go as an empty one: SGLang and llama-server refuse the whole conversation for
    them, and vLLM shows the model nothing else. What the call was refused for stands in its result.
    """
    fields = message.to_openai()
    for call, form in zip(message.tool_calls, fields.get("tool_calls", ()), strict=False):
        if not call.values():
            form["function"]["arguments"] = "{}"
    return fields


OTHER_LIMIT = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""The two names of the most tokens that may be generated: new models take one, old servers the other."""
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
"""How servers say that a parameter, or any value but its default, is not for this model; a value that is merely out
of range is the user's."""


class Parameters:
    """What one server was found to refuse."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._changed: dict[str, str | None] = {}

    def adapt(self, fields: Mapping[str, object]) -> dict[str, object]:
        """A request's fields as this server takes them."""
        names = {name: self._changed.get(name, name) for name in fields}
        return {new: fields[name] for name, new in names.items() if new is not None}

    def learn(self, error: openai.APIError, sent: Mapping[str, object]) -> bool:
        """Whether the request, sent with these (adapted) fields, is worth sending again without what was refused."""
        words = server_message(error.body)[:CLIP]
        said = _REFUSAL.search(f"{words} {error.code}")
        if not is_refusal(error) or said is None or overflows(error):
            return False
        named = [n for n in _CHANGED if n in sent and re.search(rf"\b{n}\b", words)]
        name = error.param if error.param in _CHANGED else next(iter(named), None)
        if name is None or name not in sent:
            return False
        new = _CHANGED[name]
        if new in sent or new in self._changed:  # it takes neither
            return False
        if name not in self._changed:
            self._changed[name] = new
            logger.warning(
                "%s: refuses %s=%r (%s): it is %s from now on",
                *(self._endpoint, name, sent[name], self._endpoint.quote(words)),
                "left out" if new is None else f"sent as {new}",
            )
        return True
