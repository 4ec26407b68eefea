"""Experts: they play a game perfectly, seeing only the messages that a model would see.

An expert is a state machine. Its state, `Notes`, says which call comes next, and what is known after its result. It
keeps nothing between replies: it takes the notes from the last summary (or the task), looks in the messages for the
result that they need, folds it in, and repeats until a result is missing; that is the call it makes. So it repeats
a turn that was dropped, counts one shown twice once, and ignores a result that was cut or replaced.
"""

from __future__ import annotations

import re
import zlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self

from pydantic import ValidationError

from memagent.messages import CallKind, Leaf, Message, ToolCall
from memagent_bench.games.transcript import Call, results, summaries

JSON = re.compile(r"\{.*\}", re.DOTALL)


class Notes(Leaf):
    """All that an expert must remember: a few numbers and names, however long the game is."""

    @classmethod
    @abstractmethod
    def start(cls, task: str) -> Self:
        """Returns the initial notes, from the text of the task.

        Raises:
            ValueError: the text isn't the task of the game.
        """

    @abstractmethod
    def next(self) -> Call | str:
        """Returns the call whose result is needed, or the answer."""

    @abstractmethod
    def fold(self, result: str) -> Self | None:
        """Returns the notes after the result of that call; None if the text isn't a result of it."""

    def but(self, **changes: object) -> Self:
        """Returns the notes with some fields changed."""
        return self.model_copy(update=changes)


class Expert:
    """Plays one game.

    Args:
        notes: notes of the game.
    """

    def __init__(self, notes: type[Notes]) -> None:
        self._notes = notes

    def reply(self, messages: Sequence[Message], kind: CallKind = "act") -> ToolCall | str:
        """Returns what a model that knows the game would reply; depends on the messages alone.

        Args:
            messages: prompt, summary and turns, as they would be sent.
            kind: `summary` asks for the notes, in `<summary>` tags; anything else for the next move.

        Returns:
            The call to make, or the text: the summary, or the answer.

        Raises:
            ValueError: the messages hold neither the game's task nor notes of it.
        """
        notes = self.read(messages)
        if kind == "summary":
            return f"<summary>\n{notes.model_dump_json()}\n</summary>"
        move = notes.next()
        if isinstance(move, str):
            return move
        # Different for each reply of a context, and the same for the same messages.
        mark = zlib.crc32(f"{len(messages)} {notes!r}".encode())
        return ToolCall(id=f"call_{mark:08x}", name=move.name, arguments=move.arguments)

    def read(self, messages: Sequence[Message]) -> Notes:
        """Returns the notes that follow from the messages.

        Raises:
            ValueError: as in `reply`.
        """
        outputs = results(messages)
        notes = self._read_last(messages)
        while (after := _advance(notes, outputs)) is not None:
            notes = after
        return notes

    def _read_last(self, messages: Sequence[Message]) -> Notes:
        for text in summaries(messages):
            if match := JSON.search(text):
                try:
                    return self._notes.model_validate_json(match.group())
                except ValidationError:
                    continue
        texts = (message.content for message in messages if message.role in ("system", "user"))
        return self._notes.start("\n".join(texts))


def _advance(notes: Notes, outputs: Mapping[Call, list[str]]) -> Notes | None:
    """Returns the notes after one more result, which is taken out of `outputs`; None if it is missing."""
    move = notes.next()
    if isinstance(move, str):
        return None
    waiting = outputs.get(move, [])
    for place, result in enumerate(waiting):
        if (after := notes.fold(result)) is not None:
            del waiting[place]
            return after
    return None


def numbers(pattern: str, text: str) -> tuple[int, ...]:
    """Returns the numbers that a pattern's groups match in a text.

    Raises:
        ValueError: the pattern doesn't match.
    """
    return tuple(map(int, _find(pattern, text).groups()))


def word(pattern: str, text: str) -> str:
    """Returns what a pattern's only group matches in a text.

    Raises:
        ValueError: the pattern doesn't match.
    """
    return _find(pattern, text)[1]


def _find(pattern: str, text: str) -> re.Match[str]:
    match = re.search(pattern, text)
    if match is None:
        raise ValueError(f"the text has nothing like {pattern!r}; it is not the task of this game")
    return match
