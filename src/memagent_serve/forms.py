"""What differs between chat completions and responses: how requests are read, and answers written."""

import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, cast

from memagent import Usage
from memagent_serve.overflow import Conversation, PreparedRequest
from memagent_serve.refusals import Refusal

FIELD = "memagent"
"""Of a response that differs from what the engine alone would answer."""


@dataclass(frozen=True)
class OwnAnswer:
    """An answer that the engine's server did not write: of a reading, or of a model in this process."""

    text: str
    finish: Literal["stop", "length"]
    model: str
    """The name for the response."""
    name: str
    """Of the run or request, for the id."""
    usage: Usage
    """What was paid in all."""


class Form(Protocol):
    """One of OpenAI's two protocols."""

    path: str
    """Below the engine's base URL."""
    field: str
    """With the messages."""
    limits: tuple[str, ...]
    """Fields that bound the output's tokens; the first one that is given counts."""
    readings: frozenset[str]
    """Fields that a reading honours, or that don't change an answer. With any other one the engine answers."""

    def read(self, fields: dict[str, Any]) -> Conversation:
        """What of a request takes up the window; without messages if that can't be told."""
        ...

    def rewrite(
        self, fields: dict[str, Any], conversation: Conversation, prepared: PreparedRequest
    ) -> dict[str, Any]:
        """The request with the prepared messages, otherwise unchanged."""
        ...

    def write(self, said: OwnAnswer, report: dict[str, Any]) -> dict[str, Any]:
        """A whole response; `report` is left out if it is empty."""
        ...

    def stream(self, whole: dict[str, Any], fields: dict[str, Any]) -> Iterator[bytes]:
        """A whole response as the events of a stream."""
        ...

    def add(
        self, whole: dict[str, Any], fields: dict[str, Any], prepared: PreparedRequest
    ) -> dict[str, Any]:
        """The engine's response, with what was read and paid before."""
        ...

    def edit(
        self, chunk: dict[str, Any], fields: dict[str, Any], prepared: PreparedRequest
    ) -> bool:
        """Adds that to an event of the engine's stream, if it belongs there; returns whether it did."""
        ...


def list_of(fields: Mapping[str, Any], name: str) -> list[Any]:
    """A field that should be a list; empty if it isn't."""
    value = fields.get(name)
    return cast("list[Any]", value) if isinstance(value, list) else []


def limit_of(*given: Any) -> int | None:
    """The first number of tokens that isn't left out."""
    return next((n for n in given if type(n) is int and n > 0), None)


def check_limit(name: str, given: Any, param: str) -> None:
    """Checks a limit in tokens that a request gives; None passes.

    Args:
        name: of the limit.
        given: what the request says.
        param: the field of the request that holds it.

    Raises:
        Refusal: it isn't a whole number of at least 1.
    """
    if given is not None and limit_of(given) is None:
        raise Refusal(400, f"{name} must be a whole number, at least 1, got {given!r}", param=param)


def add_usage(theirs: dict[str, Any] | None, paid: dict[str, Any]) -> dict[str, Any]:
    """The engine's usage of the last call, if it says one, plus what was paid before it, in the same form."""
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
    """A stream with some of its events edited; all else is untouched.

    Args:
        pieces: of the stream, cut anywhere.
        edit: changes an event, and returns whether it did.
    """
    async for line in _lines(pieces):
        yield _edit(line, edit)


async def _lines(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The lines with their ends, each as soon as it is complete."""
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
