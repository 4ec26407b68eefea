"""The unit of a session: an assistant's message with the results of all its calls, or a user's message.

Whatever ids messages have, turns render to messages that strict servers accept: each call has exactly one
result, right after its message, and each result has a call.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Any

from memagent.compaction import Change, What
from memagent.messages import Message, ToolCall
from memagent.prompts import Neutraliser
from memagent.prompts.session import SessionPrompts
from memagent.texts import map_texts, read_object, repair_surrogates
from memagent.tools.protocol import read_calls, write_call, write_result


@dataclass(frozen=True)
class ToolResult:
    """A call's result, as shown."""

    text: str
    handle: str | None = None
    """The archive's handle of the whole text, if this isn't all of it."""
    fixed: bool = False
    """Whether it is a placeholder line for what left, which can't be shortened further."""
    ok: bool = True
    """False if the call failed; the text says how."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Other fields of its message."""

    def with_text(self, text: str, handle: str, *, fixed: bool = False) -> ToolResult:
        """Returns the result with a shorter text, which also replaces parts that aren't text."""
        extra = {name: value for name, value in self.extra.items() if name != "content"}
        return ToolResult(text, handle, fixed or self.fixed, self.ok, extra)


@dataclass(frozen=True)
class Turn:
    """One step of a session; it is kept, dropped or summarised as a whole."""

    number: int
    """Counted from 0 over the whole session; -1 in a part of a turn, which only a summary call is shown."""
    head: Message
    """The assistant's or user's message; the ids of its calls are non-empty and unique."""
    given: tuple[str, ...] = ()
    """The original ids of the calls."""
    results: tuple[ToolResult | None, ...] = ()
    """One per call; None for those still missing."""
    own: bool = True
    """Whether a user message holds the user's words; False for a note of the loop."""

    @property
    def pending(self) -> bool:
        """Whether results are still missing."""
        return None in self.results

    @property
    def steps(self) -> tuple[tuple[ToolCall, ToolResult | None], ...]:
        """Each call with its result."""
        return tuple(zip(self.head.tool_calls, self.results, strict=True))

    def pair_results(self, missing: str | None) -> list[tuple[ToolCall, ToolResult]]:
        """Returns each call with its result: `missing` stands in for a missing one, None leaves its call out."""
        blank = None if missing is None else ToolResult(missing, fixed=True)
        pairs = ((call, result or blank) for call, result in self.steps)
        return [(call, result) for call, result in pairs if result is not None]

    def fill_results(self, missing: str) -> Turn:
        """Returns the turn with a text for each missing result."""
        return replace(self, results=tuple(result for _, result in self.pair_results(missing)))

    def without_texts(self) -> Turn:
        """Returns the turn with empty results, which keep their other fields."""
        blank = ToolResult("")
        return replace(self, results=tuple((r or blank).with_text("", "") for r in self.results))

    @cached_property
    def native(self) -> tuple[Message, ...]:
        """The turn as messages with calls, and the results so far, in their own fields."""
        results = (
            Message(
                role="tool", content=result.text, tool_call_id=call.id, extra=dict(result.extra)
            )
            for call, result in self.pair_results(None)
        )
        return (self.head, *results)

    @cached_property
    def text(self) -> tuple[Message, ...]:
        """The turn as messages with calls and results in their text."""
        content, pairs = self.head.content, self.pair_results(None)
        if self.results and not read_calls(content)[1]:  # otherwise it contains them already
            content = "\n".join(filter(None, (content, *map(write_call, self.head.tool_calls))))
        message = Message(role=self.head.role, content=content)
        results = (write_result(call.name, r.text, ok=r.ok) for call, r in pairs)
        return (message, Message(role="user", content="\n".join(results))) if pairs else (message,)

    def transcript(self, missing: str) -> str:
        """Returns the turn as one text: its message, and a line `tool(arguments) -> result` for each call."""
        parts = [self.head.content] if self.head.content.strip() else []
        parts += [
            f"{call.name}({call.arguments}) -> {result.text}"
            for call, result in self.pair_results(missing)
        ]
        return "\n".join(parts)

    def with_result(self, place: int, result: ToolResult) -> Turn:
        """Returns the turn with a result added or replaced."""
        return replace(self, results=(*self.results[:place], result, *self.results[place + 1 :]))

    def change(
        self, what: What, before: int, after: int, handle: str, *, place: int | None = None
    ) -> Change:
        """Returns the record of a change to the turn, or to the result at `place`, with tokens before and after."""
        call = None if place is None else self.head.tool_calls[place]
        return Change(
            turn=self.number,
            what=what,
            tool=call and call.name,
            call=call and call.id,
            tokens_before=before,
            tokens_after=after,
            handle=handle,
        )


# --- messages become turns


def as_user(message: Message) -> Message:
    """Turns a system message into a user message: templates refuse one in mid-conversation. Others are unchanged."""
    return message.model_copy(update={"role": "user"}) if message.role == "system" else message


def neutralise(message: Message, results: Neutraliser, spoken: Neutraliser) -> Message:
    """Neutralises a message; it is unchanged if it is already safe.

    Results must not contain control tokens or the prompt's tags. The model's and the user's messages may contain tags:
    in the text protocol a call is one.
    """
    safe, name = spoken.safe, message.tool_call_id
    calls = (
        call.model_copy(
            update={
                "id": safe(call.id),
                "name": safe(call.name),
                "arguments": neutralise_arguments(spoken, call.arguments),
                "extra": map_texts(dict(call.extra), safe),
            }
        )
        for call in message.tool_calls
    )
    fields = {
        "content": (results if message.role == "tool" else spoken).safe(message.content),
        "tool_calls": tuple(calls),
        "tool_call_id": name and safe(name),  # like the call's id
        "extra": map_texts(dict(message.extra), safe),
    }
    return message.model_copy(update=fields)


def neutralise_arguments(neutraliser: Neutraliser, text: str) -> str:
    """Neutralises control tokens and lone surrogates in arguments. JSON stays JSON; safe arguments are unchanged.

    Templates may render the values instead of the JSON, so an escaped `<` is treated as one.
    """
    safe = read_object(text, lambda part: neutraliser.safe(repair_surrogates(part)))
    if safe is not None and safe != read_object(text, str):
        text = json.dumps(safe, ensure_ascii=False)
    safe_text = neutraliser.safe(text)  # a look-alike may begin in one text and end in the next
    return text if safe is not None and read_object(safe_text) is None else safe_text


def place_message(
    turns: tuple[Turn, ...],
    message: Message,
    number: int,
    prompts: SessionPrompts,
    *,
    ok: bool = True,
) -> tuple[Turn, ...]:
    """Returns the turns plus a message.

    A result belongs to the open call with its id, else to the first open call of the last turn. If there is none, it
    is appended to the result of the call with its id in the last turn, else of the last call there, else it becomes a
    user message. `number` is that of the next turn; `ok` is False if a result, whose text is already safe, reports a
    failure, or if a user message is a note of the loop.
    """
    if message.role != "tool":
        calls = message.tool_calls if message.role == "assistant" else ()
        ids = tuple(call.id for call in calls)
        new_calls = (
            call.model_copy(update={"id": name})
            for call, name in zip(calls, _unique(ids, number), strict=True)
        )
        update = {"tool_calls": tuple(new_calls), "tool_call_id": None}
        head = as_user(message).model_copy(update=update)
        return (*turns, Turn(number, head, ids, (None,) * len(ids), own=ok))
    missing = prompts.render("missing")
    if (position := _home(turns, message.tool_call_id, missing)) is None:
        text = f"{prompts.render('stray')}\n{message.content}"
        return (*turns, Turn(number, Message(role="user", content=text), own=False))
    index, place = position
    old = turns[index].results[place]
    new_result = ToolResult(message.content, ok=ok, extra=message.extra)
    if old is not None and old.text != missing:
        text, extra = f"{old.text}\n{message.content}", {**old.extra, **message.extra}
        extra.pop("content", None)
        new_result = ToolResult(text, ok=old.ok and ok, extra=extra)
    return (*turns[:index], turns[index].with_result(place, new_result), *turns[index + 1 :])


def _unique(ids: tuple[str, ...], number: int) -> list[str]:
    # Nine letters and digits, as Mistral's templates require.
    names = (f"c{number % 100_000:05d}{place:03d}" for place in count())
    fresh = (name for name in names if name not in ids)
    return [
        name if name.strip() and name not in ids[:place] else next(fresh)
        for place, name in enumerate(ids)
    ]


def _find_calls(turn: Turn, name: str | None) -> list[int]:
    """Returns the positions of the calls with an id."""
    ids = zip(turn.head.tool_calls, turn.given, strict=True)
    return [place for place, (call, alias) in enumerate(ids) if name in (call.id, alias)]


def _home(turns: tuple[Turn, ...], name: str | None, missing: str) -> tuple[int, int] | None:
    """Finds the turn and the call that a result belongs to; None if the last turn has no calls."""

    def waiting(turn: Turn) -> list[int]:
        results = enumerate(turn.results)
        return [place for place, result in results if result is None or result.text == missing]

    index = len(turns) - 1
    if name is not None and name.strip():
        for earlier in range(index, -1, -1):
            if {*_find_calls(turns[earlier], name)} & {*waiting(turns[earlier])}:
                index = earlier
                break
    if not turns or not turns[index].results:
        return None
    matches, open_places = _find_calls(turns[index], name), waiting(turns[index])
    open_matches = [place for place in matches if place in open_places]
    return index, (*open_matches, *open_places, *matches, len(turns[index].results) - 1)[0]


# --- turns become messages


def render_turns(turns: Sequence[Turn], missing: str, *, native: bool = True) -> list[Message]:
    """Renders turns as messages, with calls and results in their own fields or in the text.

    `missing` stands in for results that never came. Those of the last turn are left out, since they may still come.
    """
    messages: list[Message] = []
    for turn in turns:
        full_turn = turn.fill_results(missing) if turn.pending and turn is not turns[-1] else turn
        messages += full_turn.native if native else full_turn.text
    return messages


def join_users(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Merges adjacent user messages, since some templates require alternating roles.

    Those of users with different names stay apart.
    """
    merged: list[Message] = []
    for message in messages:
        last = merged[-1] if merged else None
        names = [m.extra["name"] for m in (last, message) if m and m.extra.get("name")]
        is_same_author = len(names) < 2 or names[0] == names[1]
        if last is not None and last.role == message.role == "user" and is_same_author:
            text = "\n\n".join(part for part in (last.content, message.content) if part)
            extra = {**last.extra, **message.extra}
            if "content" in extra:
                extra["content"] = [*list_parts(last), *list_parts(message)]
            merged[-1] = Message(role="user", content=text, extra=extra)
        else:
            merged.append(message)
    return tuple(merged)


def list_parts(message: Message) -> list[Any]:
    """Returns a message's content as parts."""
    parts: Any = message.extra.get("content")
    return parts or ([{"type": "text", "text": message.content}] if message.content else [])


def without_media(message: Message) -> Message:
    """Replaces each part of a message that isn't text with a word; replies are unchanged."""
    if message.role == "assistant" or "content" not in message.extra:
        return message
    extra = {name: value for name, value in message.extra.items() if name != "content"}
    parts = ({"text": p} if isinstance(p, str) else p for p in list_parts(message))
    words = (str(part.get("text") or f"[{part.get('type')}]") for part in parts)
    return message.model_copy(update={"content": "\n".join(words), "extra": extra})
