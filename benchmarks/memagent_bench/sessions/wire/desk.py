"""`Desk`: how a strict server treats each request, and what it counts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from memagent.errors import ConfigError
from memagent.messages import Message, ToolSpec, Usage
from memagent_bench.sessions.counter import ChatCounter
from memagent_bench.shift.rules import LOST, Wish, read_messages
from memagent_bench.shift.shift import Shift

WriteSummary = Callable[[Sequence[Message], int], str]
"""The messages of a summary request and the maximum tokens -> the summary."""


class Refusal(StrEnum):
    """Why a request was refused."""

    OVERFLOW = "overflow"
    """Prompt and output don't fit the window."""
    BROKEN_PAIR = "broken_pair"
    """A call without a result, or a result without a call."""
    OUT_OF_STEPS = "out_of_steps"
    """The session makes no progress."""
    MALFORMED = "malformed"


class Desk:
    """Answers the requests of one session.

    A request without tools, or whose `tool_choice` is `none`, asks for a summary: no framework marks them otherwise.

    Args:
        shift: the work.
        counter: counts the prompts.
        window: maximum tokens of prompt plus output.
        max_steps: tool calls after which every request is refused.
        write: writes the summaries; None lets the rules write them.
    """

    def __init__(
        self,
        shift: Shift,
        counter: ChatCounter,
        window: int,
        max_steps: int,
        write: WriteSummary | None = None,
    ) -> None:
        self._shift, self._counter = shift, counter
        self.window, self._max_steps = window, max_steps
        self._write = write or write_by_rules
        self._ids = itertools.count()
        self.refused: list[tuple[Refusal, str]] = []
        self.stuck: Refusal | None = None
        """Reason of the last refusal; None once a request was answered."""
        self.usage = Usage()
        self.summaries = 0
        self.prompts: list[int] = []
        """Prompt tokens of each step."""
        self.kept: list[float] = []
        """For each step, the share of what must be remembered that the prompt contains."""
        self.lost_at: int | None = None
        """The step at which the prompt no longer contained the task."""

    def answer(self, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """Answers a request; returns its status and body."""
        try:
            messages = [Message.from_openai(fields) for fields in body["messages"]]
            tools = [ToolSpec.from_openai(tool) for tool in body.get("tools") or ()]
        except (ConfigError, KeyError, TypeError) as error:
            return self._refuse(Refusal.MALFORMED, f"cannot read the request: {error}")
        prompt = self._counter.count_messages(messages, tools=tools)
        limit = body.get("max_completion_tokens") or body.get("max_tokens")
        if prompt + (limit or 1) > self.window:
            return self._refuse_overflow(prompt, limit or 1)
        if fault := find_unpaired(messages):
            return self._refuse(Refusal.BROKEN_PAIR, fault)
        room = min(self.window - prompt, limit or self.window)
        if not tools or body.get("tool_choice") == "none":
            self.summaries += 1
            return self._reply(prompt, self._write(messages, room), (), room)
        if self._shift.steps > self._max_steps:
            return self._refuse(Refusal.OUT_OF_STEPS, f"no answer after {self._max_steps} calls")
        knowledge = read_messages(messages)
        move = knowledge.next()
        facts = self._shift.told
        held = sum(knowledge.holds(name, value) for name, value in facts.items())
        self.prompts.append(prompt)
        self.kept.append(held / len(facts) if facts else 1.0)
        if move == LOST and self.lost_at is None:
            self.lost_at = len(self.prompts)
        return self._reply(prompt, *((move, ()) if isinstance(move, str) else ("", move)), room)

    def _refuse_overflow(self, prompt: int, output: int) -> tuple[int, dict[str, Any]]:
        # In the words of OpenAI's API, which frameworks recognise.
        return self._refuse(
            Refusal.OVERFLOW,
            f"This model's maximum context length is {self.window} tokens. However, you requested {prompt + output} "
            f"tokens ({prompt} in the messages, {output} in the completion). Please reduce the length of the messages.",
            code="context_length_exceeded",
        )

    def _refuse(self, why: Refusal, message: str, **more: str) -> tuple[int, dict[str, Any]]:
        self.refused.append((why, message))
        self.stuck = why
        error = {"message": message, "type": "invalid_request_error", "param": "messages", **more}
        return 400, {"error": error}

    def _reply(
        self, prompt: int, text: str, wishes: Sequence[Wish], room: int
    ) -> tuple[int, dict[str, Any]]:
        calls = [
            {
                "id": f"call{next(self._ids):06}",
                "type": "function",
                "function": {"name": wish.name, "arguments": json.dumps(wish.arguments)},
            }
            for wish in wishes
        ]
        output = text or json.dumps([call["function"] for call in calls])
        spent, finish = self._counter.count(output), "tool_calls" if calls else "stop"
        if spent > room and prompt + room == self.window:
            # Other servers would cut off the reply, and the rest wouldn't be a valid call.
            return self._refuse_overflow(prompt, spent)
        if spent > room:
            text, calls, finish = text[: len(text) * room // spent], [], "length"
            spent = room
        self.stuck = None
        self.usage += Usage(calls=1, prompt_tokens=prompt, completion_tokens=spent)
        message = {"role": "assistant", "content": text or None, "tool_calls": calls or None}
        usage = {"prompt_tokens": prompt, "completion_tokens": spent}
        return 200, {
            "id": f"reply{next(self._ids):06}",
            "object": "chat.completion",
            "created": 0,
            "model": "rules",
            "choices": [{"index": 0, "finish_reason": finish, "message": message}],
            "usage": {**usage, "total_tokens": prompt + spent},
        }


def write_by_rules(messages: Sequence[Message], _: int = 0) -> str:
    """Summarises everything in the messages that the work needs."""
    return f"<summary>\n{read_messages(messages).summary()}\n</summary>"


def find_unpaired(messages: Sequence[Message]) -> str:
    """Returns the error of strict servers for calls and results that lack each other; empty if none do."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                return f"a result without a call: {message.tool_call_id}"
            waiting.remove(message.tool_call_id)
            continue
        if waiting:
            break
        waiting = [call.id for call in message.tool_calls]
    return f"calls without results: {', '.join(waiting)}" if waiting else ""
