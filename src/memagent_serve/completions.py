"""Chat completions as objects and as streams: made of an answer, or the engine's with what was read added."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import Any

from memagent import Usage
from memagent_serve.wire import event

FIELD = "memagent"
"""Of a response that differs from what the engine alone would answer."""
DONE = event("[DONE]")


def usage_fields(usage: Usage) -> dict[str, Any]:
    """What was paid, in the form of chat completions; the total includes discarded replies."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion + usage.retry_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }


def add_usage(theirs: dict[str, Any], ours: Usage) -> dict[str, Any]:
    """The engine's usage of the last call, plus what was paid before it."""
    mine = usage_fields(ours)
    sums = {
        n: mine[n] + theirs.get(n, 0)
        for n in ("prompt_tokens", "completion_tokens", "total_tokens")
    }
    details: dict[str, Any] = theirs.get("prompt_tokens_details") or {}
    cached = ours.cached_tokens + (details.get("cached_tokens") or 0)
    return {**theirs, **sums, "prompt_tokens_details": {**details, "cached_tokens": cached}}


def completion(
    message: dict[str, Any],
    finish: str,
    model: str,
    usage: Usage,
    report: dict[str, Any],
    name: str,
) -> dict[str, Any]:
    """A chat completion.

    Args:
        message: what the assistant says.
        finish: why it ended: `stop` or `length`.
        model: the name for the response.
        usage: what was paid.
        report: for the field `memagent`; empty leaves it out.
        name: of the run or request, for the id.
    """
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": usage_fields(usage),
        **({FIELD: report} if report else {}),
    }


def chunks(whole: dict[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    """A chat completion as a stream.

    Args:
        whole: as `completion` returns it.
        with_usage: the client asked for a chunk with the usage (`stream_options`).
    """
    (choice,) = whole["choices"]
    head = {n: whole[n] for n in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    if with_usage:
        head["usage"] = None
    blank = {"index": 0, "logprobs": None, "finish_reason": None}
    yield event(json.dumps({**head, "choices": [{**blank, "delta": choice["message"]}]}))
    last: dict[str, Any] = {**blank, "delta": {}, "finish_reason": choice["finish_reason"]}
    report = {FIELD: whole[FIELD]} if FIELD in whole else {}
    yield event(json.dumps({**head, "choices": [last], **report}))
    if with_usage:
        yield event(json.dumps({**head, "choices": [], "usage": whole["usage"]}))
    yield DONE


async def with_report(
    pieces: AsyncIterable[bytes], report: dict[str, Any], paid: Usage
) -> AsyncIterator[bytes]:
    """The engine's stream, with the report in its last choice and what was paid before in its usage."""
    async for line in lines(pieces):
        yield _edit(line, report, paid)


async def lines(pieces: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """The lines of a stream with their ends, each as soon as it is complete."""
    rest = b""
    async for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line + b"\n"
    if rest:
        yield rest


def _edit(line: bytes, report: dict[str, Any], paid: Usage) -> bytes:
    if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
        return line
    try:
        chunk: Any = json.loads(line[5:])
        usage, finished = chunk.get("usage"), any(c.get("finish_reason") for c in chunk["choices"])
    except (ValueError, AttributeError, KeyError, TypeError):
        return line
    if not usage and not finished:
        return line
    if usage:
        chunk["usage"] = add_usage(usage, paid)
    if finished:
        chunk[FIELD] = report
    return f"data: {json.dumps(chunk)}\n".encode()
