"""The unit of a session: an assistant's message with the results of all its calls, or a user's message.

Whatever ids messages come with, what is made of turns holds for strict servers: each call has exactly one result,
right behind its message, and each result a call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from memagent.messages import Message, ToolCall
from memagent.prompts.session import SessionPrompts
from memagent.tools.protocol import read_calls, write_call, write_result


@dataclass(frozen=True)
class ToolResult:
    """What a call returned, as it is shown."""

    text: str
    handle: str | None = None
    """Where the whole text is in the archive, if this is not all of it."""
    fixed: bool = False
    """Not to be made shorter any more: it is a line that stands for what left."""
    ok: bool = True
    """False: the call failed, and the text says how."""


@dataclass(frozen=True)
class Turn:
    """One step of a session; it stays, goes or is summarised as a whole."""

    number: int
    """Counted from 0 over the whole session."""
    head: Message
    """The assistant's or user's message; ids of its calls are not empty, and no two are the same."""
    given: tuple[str, ...] = ()
    """The ids that the calls came with."""
    results: tuple[ToolResult | None, ...] = ()
    """One for each call, None for those still to come."""

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Of its head."""
        return self.head.tool_calls

    @property
    def pending(self) -> bool:
        """Whether results are still to come."""
        return None in self.results

    @property
    def steps(self) -> tuple[tuple[ToolCall, ToolResult | None], ...]:
        """Each call with its result."""
        return tuple(zip(self.calls, self.results, strict=True))

    def with_result(self, place: int, result: ToolResult) -> Turn:
        """The turn with one result more, or another one."""
        return replace(self, results=(*self.results[:place], result, *self.results[place + 1 :]))


def place_message(
    turns: tuple[Turn, ...],
    message: Message,
    number: int,
    prompts: SessionPrompts,
    *,
    ok: bool = True,
) -> tuple[Turn, ...]:
    """The turns with a message more.

    A result belongs to the open call of its id, else to the first open call of the last turn. Where there is none, it
    is one more text of the call of its id in the last turn, else of the last call there, else a user's message.

    Args:
        turns: so far.
        message: to be added; a result's text is safe already.
        number: of the next turn.
        prompts: say what stands before a result without a call.
        ok: False where a result tells of a failure.
    """
    if message.role != "tool":
        ids = tuple(call.id for call in message.tool_calls)
        calls = tuple(
            call.model_copy(update={"id": name})
            for call, name in zip(message.tool_calls, _unique(ids, number), strict=True)
        )
        fields = {"content": message.content, "tool_calls": calls}
        if message.role != "assistant":
            fields = {"content": fields["content"], "tool_calls": (), "tool_call_id": None}
            ids = ()
        head = message.model_copy(update=fields)
        return (*turns, Turn(number, head, ids, (None,) * len(ids)))
    at = _turn_of(turns, message.tool_call_id)
    if at is None or not turns[at].calls:
        text = f"{prompts.render('stray')}\n{message.content}"
        return (*turns, Turn(number, Message(role="user", content=text)))
    turn = turns[at]
    place, open_ = _place_of(turn, message.tool_call_id)
    old = turn.results[place]
    added = ToolResult(message.content, ok=ok)
    if old is not None and not open_:
        added = ToolResult(f"{old.text}\n{message.content}", ok=old.ok and ok)
    return (*turns[:at], turn.with_result(place, added), *turns[at + 1 :])


def _unique(ids: tuple[str, ...], number: int) -> list[str]:
    taken = set(ids)
    unique: list[str] = []
    for place, name in enumerate(ids):
        own = place
        # Nine letters and digits: what Mistral's templates want.
        while not name.strip() or name in unique:
            name = f"c{number % 100_000:05d}{own:03d}"
            name, own = ("" if name in taken else name), own + 1
        unique.append(name)
    return unique


def _turn_of(turns: tuple[Turn, ...], name: str | None) -> int | None:
    named = name is not None and name.strip()
    for at in range(len(turns) - 1 if named else -1, -1, -1):
        if any(
            name in (call.id, given) and result is None
            for (call, result), given in zip(turns[at].steps, turns[at].given, strict=True)
        ):
            return at
    return len(turns) - 1 if turns else None


def _place_of(turn: Turn, name: str | None) -> tuple[int, bool]:
    """Which call a result belongs to, and whether that still waits for one."""
    named = [
        place
        for place, (call, given) in enumerate(zip(turn.calls, turn.given, strict=True))
        if name is not None and name in (call.id, given)
    ]
    waiting = [place for place, result in enumerate(turn.results) if result is None]
    for place in (*(place for place in named if place in waiting), *waiting):
        return place, True
    return (named[0] if named else len(turn.results) - 1), False


def fill_missing(turn: Turn, missing: str) -> Turn:
    """The turn with a text for each result that has not come."""
    results = tuple(ToolResult(missing, fixed=True) if r is None else r for r in turn.results)
    return replace(turn, results=results)


def render_native(turns: Iterable[Turn], missing: str) -> list[Message]:
    """The turns with calls and results in fields of their own.

    Args:
        turns: in order.
        missing: stands for results that never came. The last turn's are left out, since they may still come.
    """
    turns = list(turns)
    messages: list[Message] = []
    for turn in turns:
        messages.append(turn.head)
        for call, result in turn.steps:
            if result is None and turn is turns[-1]:
                continue
            text = missing if result is None else result.text
            messages.append(Message(role="tool", content=text, tool_call_id=call.id))
    return messages


def render_text(turns: Iterable[Turn], missing: str) -> list[Message]:
    """The turns with calls and results in the text of messages; otherwise as `native`."""
    turns = list(turns)
    messages: list[Message] = []
    for turn in turns:
        content = turn.head.content
        if turn.calls and not read_calls(content)[1]:  # else they stand in it as they were written
            content = "\n".join(filter(None, (content, *map(write_call, turn.calls))))
        messages.append(Message(role=turn.head.role, content=content))
        shown = [
            write_result(call.name, missing, ok=True)
            if result is None
            else write_result(call.name, result.text, ok=result.ok)
            for call, result in turn.steps
            if result is not None or turn is not turns[-1]
        ]
        if shown:
            messages.append(Message(role="user", content="\n".join(shown)))
    return messages


def transcript(turn: Turn, missing: str) -> str:
    """A turn as one text: what was said, and a line `tool(arguments) -> result` for each call."""
    parts = [turn.head.content] if turn.head.content.strip() else []
    for call, result in turn.steps:
        text = missing if result is None else result.text
        parts.append(f"{call.name}({call.arguments}) -> {text}")
    return "\n".join(parts)


def join_users(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The messages with neighbours of the user made one, since some templates want roles to alternate."""
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        if last is not None and last.role == message.role == "user":
            text = "\n\n".join(part for part in (last.content, message.content) if part)
            merged[-1] = Message(role="user", content=text, extra={**last.extra, **message.extra})
        else:
            merged.append(message)
    return tuple(merged)
