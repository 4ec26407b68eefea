"""A loop around the openai package."""

from __future__ import annotations

import json
from typing import Any

from openai import AsyncOpenAI
from tests.integrations.book import SYSTEM, TASK, Killed
from tests.integrations.loops import Case, Played

from memagent import Usage

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "read",
        "parameters": {"type": "object", "properties": {"page": {"type": "integer"}}},
    },
}
ORPHANS = [
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": name, "type": "function", "function": {"name": "read", "arguments": "{}"}}
            for name in ("a", "b")
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "No page."},
    {"role": "assistant", "content": "I begin anew."},
    {"role": "tool", "tool_call_id": "c", "content": "Nobody asked for this."},
    {"role": "user", "content": "Do."},
]


async def play(case: Case) -> Played:
    """Plays the case to its end, or to that of the process."""
    start = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    history: list[Any] = list(case.saved or start)
    usage = None
    async with AsyncOpenAI(base_url=case.url, api_key="none", max_retries=0) as client:
        while True:
            sent = await case.buffer.feed(history, tools=[TOOL], usage=usage)
            most = case.buffer.room
            if case.streams:
                stream = client.chat.completions.stream(
                    model="tiny", messages=sent, tools=[TOOL], max_tokens=most
                )
                async with stream as events:
                    reply = await events.get_final_completion()
            else:
                reply = await client.chat.completions.create(
                    model="tiny", messages=sent, tools=[TOOL], max_tokens=most
                )
            said = reply.choices[0].message
            usage = Usage(prompt_tokens=reply.usage.prompt_tokens) if reply.usage else None
            history.append(said.model_dump(exclude_none=True, mode="json"))
            if not said.tool_calls:
                return Played(history, said.content)
            for call in said.tool_calls:
                try:
                    text = case.book.text(json.loads(call.function.arguments)["page"])
                except Killed:
                    return Played(history)
                history.append({"role": "tool", "tool_call_id": call.id, "content": text})


def orphaned() -> Any:
    """A history with calls and results that lack each other."""
    start = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": TASK}]
    return [*start, *ORPHANS]
