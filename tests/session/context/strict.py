"""What the strictest servers want of messages, and the doubles that the tests of sessions share."""

import asyncio
from collections.abc import Sequence
from typing import Any

from memagent.errors import ConnectionFailed
from memagent.messages import ChatRequest, Message, ToolCall, ToolSpec
from memagent.models.scripted import ScriptedModel
from memagent.prompts import Neutraliser
from memagent.prompts.session import SessionPrompts
from memagent.session.context.archive import READ_ARCHIVED, FileArchive
from memagent.session.context.buffer import SummaryBuffer
from memagent.session.context.layout import Layout
from memagent.session.context.turns import Turn, neutralise, place_message
from memagent.tokens.byte_bound import ByteBound

SHORT = SessionPrompts.load().model_copy(
    update={
        "instruction": "Summarise, at most {{ words }} words.",
        "continuation": "Part {{ stage }}.\n<{{ tags.summary }}>{{ summary }}</{{ tags.summary }}>\n{{ ledger }}\n.",
        "again": "Last:\n{{ shown }}",
        "clipped": "[{{ start }}-{{ end }} in {{ handle }}{{ '!' if can_read }}]",
        "stale": "[again: {{ call }}{{ ' ' ~ handle if can_read }}]",
        "duplicate": "[as {{ call }}{{ ' ' ~ handle if can_read }}]",
    }
)
"""A wording of few bytes, for working contexts of a thousand of them."""
LOOK = ToolSpec(name="look")
TOOLS = (LOOK, ToolSpec(name="do"), READ_ARCHIVED)


def system(text: str = "frame") -> Message:
    return Message(role="system", content=text)


def user(text: str) -> Message:
    return Message(role="user", content=text)


def call(name: str, arguments: str = "{}", id: str = "c1") -> ToolCall:  # noqa: A002
    return ToolCall(id=id, name=name, arguments=arguments)


def acts(*calls: ToolCall, text: str = "") -> Message:
    return Message(role="assistant", content=text, tool_calls=calls)


def result(text: str, id: str | None = "c1") -> Message:  # noqa: A002
    return Message(role="tool", content=text, tool_call_id=id)


class Gate:
    """A model's replies that wait until they are let through."""

    def __init__(self, *fails: bool) -> None:
        self.open = asyncio.Event()
        self.fails = list(fails)

    async def __call__(self, request: ChatRequest) -> str:
        await self.open.wait()
        if self.fails and self.fails.pop(0):
            raise ConnectionFailed("away")
        return f"summary of {len(request.messages)}"


async def opened(model: ScriptedModel, **settings: Any) -> SummaryBuffer:
    """A buffer with a short wording, whose prompt is `frame` and `the task`."""
    buffer = SummaryBuffer(
        model, **{"prompts": SHORT, "idempotent": {"look"}, "working_context": 3000} | settings
    )
    await buffer.open([system(), user("the task")])
    return buffer


def lay_out(**settings: Any) -> Layout:
    """The layout of a session as `opened` opens it."""
    usual: dict[str, Any] = {
        "prompt": (system(), user("the task")), "prompts": SHORT, "counter": ByteBound(), "archive": FileArchive(),
        "neutraliser": Neutraliser(dict(SHORT.tags).values()), "spoken": Neutraliser(None), "tools": (), "native": True,
        "can_read": False, "idempotent": frozenset({"look"}),
        "writes": frozenset(), "window": 3000, "most": 8192, "summary_tokens": None,
    }  # fmt: skip
    return Layout(**usual | settings).measure()


def safe(layout: Layout, message: Message) -> Message:
    """The message as a session shows it."""
    return neutralise(message, layout.neutraliser, layout.spoken)


def turns_of(layout: Layout, *messages: Message) -> tuple[Turn, ...]:
    """The turns that messages make."""
    turns: tuple[Turn, ...] = ()
    for message in messages:
        turns = place_message(turns, safe(layout, message), len(turns), layout.prompts)
    return turns


def acted(number: int, text: str, name: str = "look") -> tuple[Message, Message]:
    """A call and its result."""
    return acts(call(name, f'{{"n": {number}}}')), result(text)


async def step(buffer: SummaryBuffer, number: int, text: str, name: str = "look") -> None:
    """One turn: a call, and its result."""
    for message in acted(number, text, name):
        await buffer.append(message)


async def fill(buffer: SummaryBuffer, name: str = "look", size: int = 150) -> int:
    """Makes turns until compaction is due, and returns how many."""
    number = 0
    while not buffer.due:
        await step(buffer, number, f"result {number} ".ljust(size, "."), name)
        number += 1
    return number


def check_strictly(messages: Sequence[Message], *, waiting: bool = False) -> None:
    """Fails where a strict server refuses: results without calls, calls without results, neighbours of one role.

    Args:
        messages: of a request.
        waiting: results of the last assistant's calls may still be missing.
    """
    open_ids: list[str] = []
    last = max((i for i, message in enumerate(messages) if message.tool_calls), default=0)
    for place, message in enumerate(messages):
        before = messages[place - 1] if place else None
        if message.role == "tool":
            if waiting and place >= last:
                while open_ids and open_ids[0] != message.tool_call_id:
                    open_ids.pop(0)
            assert open_ids, "a result has no call"
            assert message.tool_call_id == open_ids.pop(0), "a result does not follow its call"
            continue
        assert open_ids == [], "a call has no result"
        assert message.tool_call_id is None
        if message.role == "user":
            assert before is None or before.role != "user", "two messages of the user in a row"
        if message.role == "system":
            assert place == 0, "a system message in mid-conversation"
        if message.tool_calls:
            assert message.role == "assistant"
            open_ids = [call.id for call in message.tool_calls]
            assert all(open_ids)
            assert len(set(open_ids)) == len(open_ids), "two calls have the same id"
    assert waiting or open_ids == [], "a call has no result"
