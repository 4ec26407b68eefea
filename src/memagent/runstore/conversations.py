"""Conversations in the store: saved without the chunk's text, which is stored once, and read back one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from memagent.trajectory import Conversation

if TYPE_CHECKING:
    from memagent.runstore.store import RunStore


def without_text(body: dict[str, Any], text: str) -> dict[str, Any]:
    """An effect's body whose conversation lacks the chunk's text; `hole` is its position: `message:character`."""
    messages = list(body["conversation"]["messages"])
    for place, message in enumerate(messages if text else ()):
        before, found, after = message["content"].partition(text)
        if found:
            messages[place] = message | {"content": before + after}
            conversation = body["conversation"] | {"messages": messages}
            return body | {"conversation": conversation, "hole": f"{place}:{len(before)}"}
    return body


def with_text(conversation: Conversation, hole: str, text: str) -> Conversation:
    """The conversation exactly as it was sent."""
    place, at = map(int, hole.split(":"))
    messages = list(conversation.messages)
    rest = messages[place].content
    messages[place] = messages[place].model_copy(update={"content": rest[:at] + text + rest[at:]})
    return conversation.model_copy(update={"messages": tuple(messages)})


class StoredConversations(Sequence[Conversation]):
    """The committed conversations of one question in order: its updates, or the segments of a session, and its answer.

    Of a session's answers only the last one counts, unless a segment continued it: a later one contains the earlier.
    Each is read from disk when indexed, so a run of any length takes no memory until you iterate over it.
    """

    def __init__(self, store: RunStore, run_id: str, question: int) -> None:
        self._store, self._run_id = store, run_id
        self._counts: dict[str, int] = {}
        """How many there are per key; they were committed in numerical order."""
        sessions = ["segment-%d"] if question == 0 else []
        again = (f"draft/q{question}", f"reread-%d/q{question}")
        for key in (f"update-%d/q{question}", *sessions, *again):
            number, body = store.latest(run_id, key.replace("-%d", "")) or (0, {})
            self._counts[key] = number + 1 if "conversation" in body else 0
        number, answer = store.latest(run_id, f"answer/q{question}") or (0, {"segments": -1})
        segments = self._counts.get("segment-%d", 0)
        said = "conversation" in answer and answer.get("segments", segments) == segments
        self._counts[f"answer-{number}/q{question}"] = said

    def __len__(self) -> int:
        return sum(self._counts.values())

    @overload
    def __getitem__(self, index: int) -> Conversation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Conversation]: ...
    def __getitem__(self, index: int | slice) -> Conversation | list[Conversation]:
        place = range(len(self))[index]
        if isinstance(place, range):
            return [self[each] for each in place]
        for key, count in self._counts.items():
            if place < count:
                body = self._store.effect(self._run_id, key.replace("%d", str(place)))
                assert body is not None, "effects of a kind are committed in order"
                conversation = Conversation.model_validate(body["conversation"])
                if body.get("hole") is None:
                    return conversation
                chunk = self._store.effect(self._run_id, f"chunk-{conversation.chunk}")
                assert chunk is not None, "a chunk is committed before what shows it"
                return with_text(conversation, body["hole"], chunk["text"])
            place -= count
        raise IndexError(index)

    def __reduce__(self) -> tuple[type, tuple[list[Conversation]]]:
        """A copy contains the conversations themselves."""
        return list, (list(self),)

    def __repr__(self) -> str:
        return f"<{len(self)} conversations of run {self._run_id!r}>"
