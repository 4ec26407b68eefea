"""Conversations in the store: without the chunk's text, which is kept once, and read back one by one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, overload

from memagent.runstore.database import Database
from memagent.trajectory import Conversation


def without_text(body: dict[str, Any], text: str) -> dict[str, Any]:
    """An effect's body whose conversation lacks the chunk's text; `hole` says where that goes: `message:character`."""
    conversation = body["conversation"]
    for place, message in enumerate(conversation["messages"]):
        at = message["content"].find(text) if text else -1
        if at >= 0:
            rest = message["content"][:at] + message["content"][at + len(text) :]
            messages = list(conversation["messages"])
            messages[place] = {**message, "content": rest}
            return {
                **body,
                "conversation": {**conversation, "messages": messages},
                "hole": f"{place}:{at}",
            }
    return body


def with_text(body: dict[str, Any], text: str) -> Conversation:
    """The conversation of an effect's body as it was sent, to the character."""
    conversation = Conversation.model_validate(body["conversation"])
    if body.get("hole") is None:
        return conversation
    place, at = map(int, body["hole"].split(":"))
    messages = list(conversation.messages)
    rest = messages[place].content
    messages[place] = messages[place].model_copy(update={"content": rest[:at] + text + rest[at:]})
    return conversation.model_copy(update={"messages": tuple(messages)})


def chunk_text(db: Database, run_id: str, chunk: int | None) -> str:
    """The text of a chunk, empty where there is none."""
    # Not by json_extract, which ends a text at its first NUL.
    body = None if chunk is None else read_body(db, run_id, "chunk", chunk)
    return "" if body is None else body["text"]


def read_body(db: Database, run_id: str, kind: str, number: int) -> dict[str, Any] | None:
    """What was committed, None where nothing was."""
    found = db.read(
        "SELECT body FROM effects WHERE run = ? AND kind = ? AND number = ? AND body IS NOT NULL",
        (run_id, kind, number),
    )
    return json.loads(found[0][0]) if found else None


class StoredConversations(Sequence[Conversation]):
    """The committed conversations of one question in order: its updates, or the segments of a session, and its answer.

    Each is read from disk as it is indexed, so a run of any length costs no memory until it is walked.
    """

    def __init__(self, db: Database, run_id: str, question: int) -> None:
        self._db, self._run_id = db, run_id
        segments = ["segment"] if question == 0 else []
        self._kinds = [f"update/q{question}", *segments, f"answer/q{question}"]

    def __len__(self) -> int:
        return sum(count for _, count in self._counts())

    @overload
    def __getitem__(self, index: int) -> Conversation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Conversation]: ...
    def __getitem__(self, index: int | slice) -> Conversation | list[Conversation]:
        counts = self._counts()
        places = range(sum(count for _, count in counts))[index]
        if isinstance(places, range):
            return [self._read(place, counts) for place in places]
        return self._read(places, counts)

    def __iter__(self) -> Iterator[Conversation]:
        counts = self._counts()
        return (self._read(place, counts) for place in range(sum(count for _, count in counts)))

    def _counts(self) -> list[tuple[str, int]]:
        """How many of each kind are committed. Within a kind that happens in the order of the numbers."""
        last = (
            "SELECT number + 1 FROM effects WHERE run = ? AND kind = ? AND committed IS NOT NULL "
            "ORDER BY number DESC LIMIT 1"
        )
        found = [(kind, self._db.read(last, (self._run_id, kind))) for kind in self._kinds]
        return [(kind, rows[0][0] if rows else 0) for kind, rows in found]

    def _read(self, place: int, counts: list[tuple[str, int]]) -> Conversation:
        for kind, count in counts:
            if place < count:
                body = read_body(self._db, self._run_id, kind, place)
                assert body is not None, "effects of a kind are committed in order"
                chunk = body["conversation"].get("chunk") if body.get("hole") else None
                return with_text(body, chunk_text(self._db, self._run_id, chunk))
            place -= count
        raise IndexError(place)

    def __reduce__(self) -> tuple[type, tuple[list[Conversation]]]:
        """A copy holds the conversations themselves."""
        return list, (list(self),)

    def __repr__(self) -> str:
        return f"<{len(self)} conversations of run {self._run_id!r}>"
