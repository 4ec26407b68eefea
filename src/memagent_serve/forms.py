"""Differences between chat completions and responses: how requests are read and answers written."""

import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from memagent import Usage
from memagent_serve.overflow import Conversation, PreparedRequest
from memagent_serve.refusals import Refusal

FIELD = "memagent"
"""Field for memagent's report in a response that differs from what the engine alone would answer."""

IGNORED = {
    "metadata",
    "model",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "truncation",
    "user",
}
"""Fields that don't change the answer of a model that calls no tools."""
EMPTY: tuple[Any, ...] = (None, False, "", [], {})
IDLE: dict[str, tuple[Any, ...]] = {
    "modalities": (*EMPTY, ["text"]),
    "n": (None, 1),
    "repetition_penalty": (None, 1),
    "response_format": (*EMPTY, {"type": "text"}),
    "text": (*EMPTY, {"format": {"type": "text"}}),
    "tool_choice": (None, "auto", "none"),
    "top_k": (*EMPTY, -1),
}
"""Values of other fields that change nothing. A field that isn't listed may be `EMPTY`, or 0, which equals False."""


@dataclass(frozen=True)
class OwnAnswer:
    """An answer that the engine's server didn't write: from a reading, or from a model in this process."""

    text: str
    finish: Literal["stop", "length"]
    model: str
    """Name of the model for the response."""
    name: str
    """Name of the run or request, for the response's id."""
    usage: Usage
    """Total usage that was paid."""


class Form(Protocol):
    """One of OpenAI's two protocols."""

    path: str
    """Path below the engine's base URL."""
    field: str
    """Name of the field with the messages."""
    limits: tuple[str, ...]
    """Fields that limit the output's tokens; the first one given counts."""
    readings: frozenset[str]
    """Fields that a reading honours. Requests with other `effective` fields go to the engine."""

    def read(self, fields: dict[str, Any], max_body: int) -> Conversation:
        """Parses the part of a request that takes up the window; without messages if that can't be told. Blocks.

        Args:
            fields: fields of the request.
            max_body: maximum bytes of what is packed in them.

        Raises:
            Refusal: something in them has the wrong form.
        """
        ...

    def rewrite(
        self, fields: dict[str, Any], conversation: Conversation, prepared: PreparedRequest
    ) -> dict[str, Any]:
        """Returns the request with the prepared messages, otherwise unchanged."""
        ...

    def write(self, said: OwnAnswer, report: dict[str, Any]) -> dict[str, Any]:
        """Returns a whole response; an empty `report` is left out."""
        ...

    def stream(self, whole: dict[str, Any], fields: dict[str, Any]) -> Iterator[bytes]:
        """Yields a whole response as the events of a stream."""
        ...

    def add(
        self, whole: dict[str, Any], fields: dict[str, Any], prepared: PreparedRequest
    ) -> dict[str, Any]:
        """Adds to the engine's response what was read and paid before."""
        ...

    def edit(
        self, chunk: dict[str, Any], fields: dict[str, Any], prepared: PreparedRequest
    ) -> bool:
        """Adds the same to an event of the engine's stream, if it belongs there; returns whether it did."""
        ...


def effective(fields: Mapping[str, Any], form: Form) -> list[str]:
    """Returns the names of the fields that change the answer in a way that a reading doesn't honour."""
    return [
        name
        for name, value in fields.items()
        if name not in form.readings | IGNORED and value not in IDLE.get(name, EMPTY)
    ]


def list_of(fields: Mapping[str, Any], name: str) -> list[Any]:
    """Returns a field that should be a list; empty if it isn't."""
    value = fields.get(name)
    return cast("list[Any]", value) if isinstance(value, list) else []


def limit_of(*given: Any) -> int | None:
    """Returns the first valid number of tokens; None if there is none."""
    return next((n for n in given if type(n) is int and n > 0), None)


def check_limit(name: str, given: Any, param: str) -> None:
    """Checks a limit in tokens that a request gives; None passes.

    Args:
        name: name of the limit.
        given: value in the request.
        param: field of the request that has it.

    Raises:
        Refusal: the limit isn't a whole number of at least 1.
    """
    if given is not None and limit_of(given) is None:
        raise Refusal(400, f"{name} must be a whole number, at least 1, got {given!r}", param=param)


def add_usage(theirs: dict[str, Any] | None, paid: dict[str, Any]) -> dict[str, Any]:
    """Adds what was paid before to the engine's usage of the last call, if reported, in the same form."""
    theirs = theirs or {}
    sums = {
        name: add_usage(theirs.get(name), cast("dict[str, Any]", more))
        if isinstance(more, dict)
        else (theirs.get(name) or 0) + more
        for name, more in paid.items()
    }
    return theirs | sums


async def edit_stream(
    pieces: AsyncIterable[bytes], edit: Callable[[dict[str, Any]], bool]
) -> AsyncIterator[bytes]:
    """Yields a stream with some of its events edited; everything else is untouched.

    Args:
        pieces: the stream, cut anywhere.
        edit: changes an event, and returns whether it did.
    """
    async for line in _lines(pieces):
        yield _edit(line, edit)


async def _lines(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yields the lines with their ends, each as soon as it is complete."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest


def _edit(line: bytes, edit: Callable[[dict[str, Any]], bool]) -> bytes:
    if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
        return line
    try:
        chunk: Any = json.loads(line[5:])
        return f"data: {json.dumps(chunk)}\n".encode() if edit(chunk) else line
    except (ValueError, AttributeError, KeyError, TypeError):  # not an event of this protocol
        return line
