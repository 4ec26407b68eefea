"""Reads stored values one by one. Conversations are stored without the chunk's text, which is stored only once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

from memagent.trajectory import Conversation

if TYPE_CHECKING:
    from memagent.runstore.store import RunStore

T = TypeVar("T")


def without_text(body: dict[str, Any], text: str) -> dict[str, Any]:
    """Returns an effect's body without the chunk's text in its conversation; `hole` is where: `message:character`."""
    messages = list(body["conversation"]["messages"])
    for place, message in enumerate(messages if text else ()):
        before, separator, after = message["content"].partition(text)
        if separator:
            messages[place] = message | {"content": before + after}
            conversation = body["conversation"] | {"messages": messages}
            return body | {"conversation": conversation, "hole": f"{place}:{len(before)}"}
    return body


@dataclass(frozen=True, repr=False, eq=False)
class StoredValues(Sequence[T]):
    """The values that effects of a run hold, in order. Each is read from disk when indexed, so they take no memory."""

    store: RunStore
    run_id: str
    counts: dict[str, int]
    """Number of effects by key (`update-%d/q0`), which were committed in numerical order."""
    make: Callable[[Any], T]
    """Makes a value from an effect's body."""

    def __len__(self) -> int:
        return sum(self.counts.values())

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        place = range(len(self))[index]
        if isinstance(place, range):
            return [self[each] for each in place]
        for key, count in self.counts.items():
            if place < count:
                body = self.store.effect(self.run_id, key.replace("%d", str(place)))
                assert body is not None, "effects of a kind are committed in order"
                return self.make(body)
            place -= count
        raise IndexError(index)

    def __reduce__(self) -> tuple[type, tuple[list[T]]]:
        """Makes a copy contain the values themselves."""
        return list, (list(self),)

    def __repr__(self) -> str:
        return f"<{len(self)} stored values of run {self.run_id!r}>"


def find_conversations(store: RunStore, run_id: str, question: int) -> StoredValues[Conversation]:
    """Returns a question's committed conversations in order: its updates, or a session's segments, and its answer.

    Only a session's last answer is included, unless a segment continued it: later conversations contain earlier ones.
    """
    counts: dict[str, int] = {}
    sessions = ["segment-%d"] if question == 0 else []
    reread_keys = (f"draft/q{question}", f"reread-%d/q{question}")
    for key in (f"update-%d/q{question}", *sessions, *reread_keys):
        number, body = store.latest(run_id, key.replace("-%d", "")) or (0, {})
        counts[key] = number + 1 if "conversation" in body else 0
    number, answer = store.latest(run_id, f"answer/q{question}") or (0, {"segments": -1})
    segments = counts.get("segment-%d", 0)
    has_answer = "conversation" in answer and answer.get("segments", segments) == segments
    counts[f"answer-{number}/q{question}"] = has_answer

    def make(body: dict[str, Any]) -> Conversation:
        fields = body["conversation"]
        if body.get("hole") is not None:
            chunk = store.effect(run_id, f"chunk-{fields['chunk']}")
            assert chunk is not None, "a chunk is committed before what shows it"
            place, at = map(int, body["hole"].split(":"))
            message = fields["messages"][place]
            content = message["content"]
            message["content"] = content[:at] + chunk["text"] + content[at:]
        return Conversation.model_validate(fields)

    return StoredValues(store, run_id, counts, make)
