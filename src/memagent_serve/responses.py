"""The form of `/v1/responses`, and the route `/v1/responses/compact`."""

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from memagent import Usage
from memagent_serve.bodies import take_body
from memagent_serve.desk import Desk
from memagent_serve.forms import FIELD, OwnAnswer, add_usage, check_limit, limit_of, list_of
from memagent_serve.items import COMPACTION, kind_of, pack, read_input, write_input
from memagent_serve.overflow import Conversation, PreparedRequest
from memagent_serve.reading import RUN_PREFIX
from memagent_serve.refusals import Refusal
from memagent_serve.wire import event, while_connected

READINGS = "context_management include input instructions seed stream temperature top_p"
STATE = ("previous_response_id", "conversation", "prompt")
"""Fields that refer to something only the engine knows: such requests pass, since they can't be counted."""


class ResponsesForm:
    """Responses: see `Form`."""

    path, field, limits = "/responses", "input", ("max_output_tokens",)
    readings: frozenset[str] = frozenset(READINGS.split())

    def read(self, fields: dict[str, Any], max_body: int) -> Conversation:
        """See `Form`."""
        max_tokens = limit_of(*map(fields.get, self.limits))
        previous: object = fields.get("previous_response_id")
        if isinstance(previous, str) and previous.startswith(f"resp_{RUN_PREFIX}-"):
            raise Refusal(
                400,
                f"the response {previous:.80} came from a reading, and such responses aren't kept: send its items and "
                f"yours as input",
                param="previous_response_id",
            )
        refers = any(kind_of(item) == "item_reference" for item in list_of(fields, "input"))
        if refers or any(fields.get(name) for name in STATE):
            return Conversation([], [], max_tokens)
        rules = list_of(fields, "context_management")
        thresholds = [
            rule.get("compact_threshold") for rule in rules if kind_of(rule) == COMPACTION
        ]
        for threshold in thresholds:
            check_limit("compact_threshold", threshold, "context_management")
        threshold = limit_of(*thresholds)
        return read_input(fields, max_body, most=max_tokens, threshold=threshold)

    def rewrite(
        self, fields: dict[str, Any], conversation: Conversation, prepared: PreparedRequest
    ) -> dict[str, Any]:
        """See `Form`."""
        items = write_input(prepared.messages, conversation, fields)
        other_fields = {
            name: value for name, value in fields.items() if name != "context_management"
        }
        return other_fields | {"input": items}

    def write(self, said: OwnAnswer, report: dict[str, Any]) -> dict[str, Any]:
        """See `Form`."""
        part: dict[str, Any] = {
            "type": "output_text",
            "text": said.text,
            "annotations": [],
            "logprobs": [],
        }
        is_cut = said.finish == "length"
        status = "incomplete" if is_cut else "completed"
        message = {"type": "message", "id": f"msg_{said.name}", "status": status}
        return {
            "id": f"resp_{said.name}",
            "object": "response",
            "created_at": int(time.time()),
            "status": status,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "model": said.model,
            "output": [{**message, "role": "assistant", "content": [part]}],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": _usage(said.usage),
            **({FIELD: report} if report else {}),
        }

    def stream(self, whole: dict[str, Any], fields: dict[str, Any]) -> Iterator[bytes]:
        """See `Form`."""
        (item,) = whole["output"]
        (part,) = item["content"]
        response_start: dict[str, Any] = {
            **whole,
            "status": "in_progress",
            "output": [],
            "usage": None,
        }
        part_place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        place = {"output_index": 0}
        events: list[tuple[str, dict[str, Any]]] = [
            ("created", {"response": response_start}),
            (
                "output_item.added",
                {**place, "item": {**item, "status": "in_progress", "content": []}},
            ),
            ("content_part.added", {**part_place, "part": {**part, "text": ""}}),
            ("output_text.delta", {**part_place, "delta": part["text"], "logprobs": []}),
            ("output_text.done", {**part_place, "text": part["text"], "logprobs": []}),
            ("content_part.done", {**part_place, "part": part}),
            ("output_item.done", {**place, "item": item}),
            (whole["status"], {"response": whole}),
        ]
        for number, (name, payload) in enumerate(events):
            kind = f"response.{name}"
            yield event(json.dumps({"type": kind, "sequence_number": number, **payload}), kind)

    def add(
        self, whole: dict[str, Any], fields: dict[str, Any], prepared: PreparedRequest
    ) -> dict[str, Any]:
        """See `Form`. A shortened history is returned as an item if the request manages its context."""
        usage = add_usage(whole.get("usage"), _usage(prepared.paid))
        is_managed = fields.get("context_management") and prepared.report.get("summaries")
        state = prepared.state if is_managed else None
        items = [] if state is None else [pack(prepared.messages, state, fields)]
        report = {FIELD: prepared.report} if prepared.report else {}
        return {**whole, "usage": usage, "output": [*items, *whole["output"]], **report}

    def edit(
        self, chunk: dict[str, Any], fields: dict[str, Any], prepared: PreparedRequest
    ) -> bool:
        """See `Form`. The item is only in the last event, since the engine numbers the items that it streams."""
        if chunk["type"] not in ("response.completed", "response.incomplete"):
            return False
        chunk["response"] = self.add(chunk["response"], fields, prepared)
        return True


async def compact(desk: Desk, request: Request) -> Response:
    """Answers a request to shorten a conversation."""
    _, fields = await take_body(request, desk.settings.max_body)
    desk.check_name(fields)
    if names := [name for name in STATE if fields.get(name)]:
        raise Refusal(
            400,
            f"this endpoint keeps no responses, so {names[0]} has no meaning: send the items as input",
            param=names[0],
        )
    conversation = await asyncio.to_thread(ResponsesForm().read, fields, desk.settings.max_body)
    if not conversation.messages:
        raise Refusal(400, "input holds no items that can be read", param="input")
    history = await while_connected(request.receive, desk.overflow.compact(conversation))
    return JSONResponse(
        {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response.compaction",
            "created_at": int(time.time()),
            "output": [pack(history.messages, history.state, fields)],
            "usage": _usage(history.paid),
            FIELD: {"summaries": history.summaries, "clipped": history.clipped},
        }
    )


def _usage(usage: Usage) -> dict[str, Any]:
    """Returns what was paid; the total includes discarded replies."""
    prompt, output = usage.prompt_tokens, usage.completion_tokens
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + output + usage.retry_tokens,
    }
