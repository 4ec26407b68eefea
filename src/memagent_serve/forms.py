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
    """Fields that a reading honours, or that don't change an answer. Requests with others go to the engine."""

    def read(self, fields: dict[str, Any]) -> Conversation:
        """Parses the part of a request that takes up the window; without messages if that can't be told."""
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
