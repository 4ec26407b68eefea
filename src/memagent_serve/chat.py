"""The form of `/v1/chat/completions`."""

import json
import time
from collections.abc import Iterator
from typing import Any, cast

from memagent import Usage
from memagent_serve.forms import FIELD, OwnAnswer, add_usage, limit_of, list_of
from memagent_serve.overflow import Conversation, PreparedRequest
from memagent_serve.wire import event

READINGS = "messages seed stream stream_options temperature top_p"


class ChatForm:
    """Chat completions: see `Form`."""

    path, field = "/chat/completions", "messages"
    limits: tuple[str, ...] = ("max_completion_tokens", "max_tokens")
    readings: frozenset[str] = frozenset(READINGS.split())

    def read(self, fields: dict[str, Any], max_body: int) -> Conversation:
        """See `Form`."""
        max_tokens = limit_of(*map(fields.get, self.limits))
        return Conversation(list_of(fields, "messages"), list_of(fields, "tools"), max_tokens)

    def rewrite(
        self, fields: dict[str, Any], conversation: Conversation, prepared: PreparedRequest
    ) -> dict[str, Any]:
        """See `Form`."""
        return fields | {"messages": prepared.messages}

    def write(self, said: OwnAnswer, report: dict[str, Any]) -> dict[str, Any]:
        """See `Form`."""
        message = {"role": "assistant", "content": said.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": said.finish}
        return {
            "id": f"chatcmpl-{said.name}",
            "object": "chat.completion",
            "created": int(time.time()),
            "model": said.model,
            "choices": [choice],
            "usage": _usage(said.usage),
            **({FIELD: report} if report else {}),
        }

    def stream(self, whole: dict[str, Any], fields: dict[str, Any]) -> Iterator[bytes]:
        """See `Form`."""
        options: Any = fields.get("stream_options")
        with_usage = isinstance(options, dict) and cast("dict[str, Any]", options).get(
            "include_usage"
        )
        (choice,) = whole["choices"]
        head = {n: whole[n] for n in ("id", "created", "model")}
        head |= {"object": "chat.completion.chunk", **({"usage": None} if with_usage else {})}
        blank: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": None}
        yield event(json.dumps({**head, "choices": [{**blank, "delta": choice["message"]}]}))
        last = {**blank, "delta": dict[str, Any](), "finish_reason": choice["finish_reason"]}
        report = {FIELD: whole[FIELD]} if FIELD in whole else {}
        yield event(json.dumps({**head, "choices": [last], **report}))
        if with_usage:
            yield event(json.dumps({**head, "choices": [], "usage": whole["usage"]}))
        yield event("[DONE]")

    def add(
        self, whole: dict[str, Any], fields: dict[str, Any], prepared: PreparedRequest
    ) -> dict[str, Any]:
        """See `Form`."""
        usage = add_usage(whole.get("usage"), _usage(prepared.paid))
        return {**whole, "usage": usage, FIELD: prepared.report}

    def edit(
        self, chunk: dict[str, Any], fields: dict[str, Any], prepared: PreparedRequest
    ) -> bool:
        """See `Form`."""
        is_finished = any(choice.get("finish_reason") for choice in chunk["choices"])
        if is_finished:
            chunk[FIELD] = prepared.report
        if chunk.get("usage"):
            chunk["usage"] = add_usage(chunk["usage"], _usage(prepared.paid))
        return is_finished or bool(chunk.get("usage"))


def _usage(usage: Usage) -> dict[str, Any]:
    """Returns what was paid; the total includes discarded replies."""
    prompt, completion = usage.prompt_tokens, usage.completion_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion + usage.retry_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
    }
