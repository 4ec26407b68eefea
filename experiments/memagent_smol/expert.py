"""The expert that shows how to keep a memory: knows which sentences a question needs, and writes down only these."""

from __future__ import annotations

from memagent.messages import ChatRequest
from memagent_smol.story import UNKNOWN, Lesson, Note

KEEP = "[keep]"
"""The keep word of the gate in the prompt set."""
NOTHING = "none"
"""The empty memory of that set."""


class Expert:
    """Replies to a memory agent's calls about one document; `ScriptedModel` makes a model of it.

    A memory is the sentences themselves, a line each, with their titles, so every word is copied. Lines begin with a
    dash, so one token tells whether there is anything to write down.
    """

    def __init__(self, lesson: Lesson) -> None:
        self._lesson = lesson
        self._notes: list[Note] = []
        self.missed = len(lesson.notes)
        """Notes that no chunk has shown yet; a sentence that is cut between two chunks never is."""

    def __call__(self, request: ChatRequest) -> str:
        """Returns the new memory, or the answer."""
        if request.kind == "answer":
            return self._lesson.answer if self._notes else UNKNOWN
        return self._update(request.parts["memory"], request.parts["chunk"])

    def _update(self, memory: str, chunk: str) -> str:
        text = " ".join(chunk.split())
        lines = [line for line in memory.splitlines() if line != NOTHING]
        notes = [
            note for note in self._lesson.notes if note not in self._notes and note.text in text
        ]
        if not notes:
            return KEEP
        for note in notes:
            lines = [] if note.replaces else lines
            named = note.title and note.title in chunk
            lines.append(f"- {note.title}: {note.text}" if named else f"- {note.text}")
        self._notes += notes
        self.missed -= len(notes)
        return "\n".join(lines)
