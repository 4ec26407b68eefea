"""Conversations in the store: packed without the chunk's text, which is kept once, and read back one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from memagent.runstore.database import Database
from memagent.runstore.records import ANSWER_STEP
from memagent.trajectory import Conversation


def pack(conversation: Conversation, text: str) -> tuple[str, str | None]:
    """The conversation as JSON without the chunk's text, and where that goes: `message:character`."""
    for place, message in enumerate(conversation.messages):
        at = message.content.find(text) if text else -1
        if at >= 0:
            rest = message.content[:at] + message.content[at + len(text) :]
            messages = list(conversation.messages)
            messages[place] = message.model_copy(update={"content": rest})
            packed = conversation.model_copy(update={"messages": tuple(messages)})
            return _json(packed), f"{place}:{at}"
    return _json(conversation), None


def _json(conversation: Conversation) -> str:
    # Agents' conversations have no turns, and a file without the word can be read by versions that do not know it.
    return conversation.model_dump_json(exclude=None if conversation.turns else {"turns"})


def unpack(packed: str, hole: str | None, text: str | None) -> Conversation:
    """The conversation as it was sent, to the character."""
    conversation = Conversation.model_validate_json(packed)
    if hole is None or text is None:
        return conversation
    place, at = map(int, hole.split(":"))
    messages = list(conversation.messages)
    rest = messages[place].content
    messages[place] = messages[place].model_copy(update={"content": rest[:at] + text + rest[at:]})
    return conversation.model_copy(update={"messages": tuple(messages)})


class StoredConversations(Sequence[Conversation]):
    """The committed conversations of one question: updates in order, then the answer.

    Each is read from disk as it is indexed, so a run of any length costs no memory until it is walked.
    """

    def __init__(self, db: Database, run_id: str, question: int) -> None:
        self._db, self._run_id, self._question = db, run_id, question

    def __len__(self) -> int:
        return sum(self._counts())

    @overload
    def __getitem__(self, index: int) -> Conversation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Conversation]: ...
    def __getitem__(self, index: int | slice) -> Conversation | list[Conversation]:
        updates, answers = self._counts()
        places = range(updates + answers)[index]
        if isinstance(places, range):
            return [self._read(place, updates) for place in places]
        return self._read(places, updates)

    def __iter__(self) -> Iterator[Conversation]:
        updates, answers = self._counts()
        return (self._read(place, updates) for place in range(updates + answers))

    def _counts(self) -> tuple[int, int]:
        """How many updates and answers are committed. Updates are, in order of their chunks."""
        of_question = (
            "SELECT chunk FROM steps WHERE run = ? AND question = ? AND committed IS NOT NULL"
        )
        key = (self._run_id, self._question)
        updates = self._db.read(f"{of_question} AND chunk >= 0 ORDER BY chunk DESC LIMIT 1", key)
        answers = self._db.read(f"{of_question} AND chunk = {ANSWER_STEP}", key)
        return (updates[0][0] + 1 if updates else 0), len(answers)

    def _read(self, place: int, updates: int) -> Conversation:
        chunk = place if place < updates else ANSWER_STEP
        rows = self._db.read(
            "SELECT conversation, hole, text FROM steps LEFT JOIN chunks USING (run, chunk) "
            "WHERE run = ? AND question = ? AND chunk = ?",
            (self._run_id, self._question, chunk),
        )
        return unpack(*rows[0])

    def __repr__(self) -> str:
        return f"<{len(self)} conversations of run {self._run_id!r}>"
