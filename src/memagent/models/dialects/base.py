"""A dialect: data and a few functions, one instance for each kind of server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from memagent.messages import ChatRequest

DialectName = Literal["plain", "openai", "vllm", "sglang"]

Fields = Mapping[str, object]
"""Fields of a request's body."""


@dataclass(frozen=True, eq=False)
class Dialect:
    """How to speak to one kind of server. What is left out is what every server knows."""

    name: DialectName
    owner: str | None = None
    """What the models that it lists are `owned_by`: this is how a server is told from others."""
    limit: str = "max_tokens"
    """The field for the most tokens that may be generated."""
    version: tuple[str, str] | None = None
    """Path, from the server's root, and key of its version."""
    switches_thinking: bool = False
    """Takes `chat_template_kwargs`: unknown fields are a 422 on some servers."""
    pattern: Callable[[str], Fields] | None = None
    """Holds the reply to a regular expression."""
    continues: Fields = field(default_factory=dict[str, object])
    """Has the reply go on where an assistant's message ends that comes last."""
    want_tokens: Fields = field(default_factory=dict[str, object])
    """Asks for ids and log-probabilities."""
    streams_tokens: bool = True
    """Gives ids in streams too."""
    any_name: bool = False
    """Answers to every model name with the one model that it has: a wrong name is only seen in its list."""
    tokenize: bool = False
    """Counts texts and conversations at `/tokenize` and gives texts back at `/detokenize`."""

    def fields(self, request: ChatRequest, *, tokens: bool) -> dict[str, object]:
        """What a request asks for beside its messages and sampling.

        Args:
            request: the call.
            tokens: also asks for token ids and log-probabilities, where the server gives them.
        """
        fields: dict[str, object] = {self.limit: request.max_tokens}
        if request.seed is not None:
            fields["seed"] = request.seed
        if request.thinking is not None and self.switches_thinking:
            fields["chat_template_kwargs"] = {"enable_thinking": request.thinking}
        if request.pattern is not None and self.pattern is not None:
            fields |= self.pattern(request.pattern)
        if request.messages[-1].role == "assistant":
            fields |= self.continues
        if tokens:
            fields |= self.want_tokens
        return fields


def id_list(value: JsonValue) -> list[int] | None:
    """A list of token ids, None for anything else."""
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        return None
    return [item for item in value if isinstance(item, int)]
