"""The archive of texts that left the context, and the tool that reads them back."""

import threading
from typing import Protocol

from memagent.chunking.fitting import ends
from memagent.errors import UnknownHandle
from memagent.messages import ToolSpec
from memagent.runstore import RunStore
from memagent.session.context.anchors import BYTES_PER_TOKEN
from memagent.texts import digest
from memagent.tokens.base import TokenCounter
from memagent.tools import Tool, tool

HANDLE_BYTES = 6
"""Length of a text's hash in bytes: two of 10,000 texts collide once in five million sessions."""

READ_ARCHIVED = ToolSpec(
    name="read_archived",
    description=(
        "Reads a text that was left out of the conversation to save room. A long one is returned in parts: call it "
        "again with the start that it names."
    ),
    parameters={
        "type": "object",
        "properties": {
            "handle": {"type": "string", "description": "what the text is kept as"},
            "start": {"type": "integer", "minimum": 0, "description": "first character, from 0"},
            "end": {"type": "integer", "minimum": 0, "description": "one past the last character"},
        },
        "required": ["handle"],
    },
)
"""`read_archived(handle, start=0, end=None)`, as a model sees it. `SummaryBuffer.archive_tool` runs it."""


class Archive(Protocol):
    """Stores texts. Methods may block, so they are called in threads, several at a time."""

    def put(self, text: str) -> str:
        """Stores a text and returns its handle: a short word, always the same for the same text."""
        ...

    def get(self, handle: str) -> str:
        """Returns the text with a handle. Raises an `UnknownHandle` if there is none."""
        ...


class RunArchive:
    """Stores texts as effects of a run, so that a resumed run need not make them again."""

    def __init__(self, store: RunStore, run_id: str) -> None:
        self._store, self._run_id = store, run_id

    def put(self, text: str) -> str:
        """Stores a text under its hash, so the same text always has the same handle."""
        handle = handle_of(text)
        self._open().commit(self._run_id, f"archive/{handle}", {"text": text})
        return handle

    def get(self, handle: str) -> str:
        """See `Archive.get`."""
        body = self._open().effect(self._run_id, f"archive/{handle}")
        if body is None:
            remedy = "use a handle from the conversation"
            raise UnknownHandle(f"nothing is kept as {handle[:64]!r}: {remedy}")
        return body["text"]

    def _open(self) -> RunStore:
        return self._store


class FileArchive(RunArchive):
    """Stores texts in a temporary run store, on disk and deleted on close; RAM stays flat."""

    def __init__(self) -> None:
        self._run_id, self._lock = "archive", threading.Lock()
        self._temporary: RunStore | None = None

    def _open(self) -> RunStore:
        with self._lock:
            if self._temporary is None:
                self._temporary = RunStore(None)
                self._temporary.create(self._run_id, {}, {}, {})
            return self._temporary

    def close(self) -> None:
        """Deletes everything; a closed archive starts empty when used again."""
        with self._lock:
            if self._temporary is not None:
                self._temporary.close()
            self._temporary = None


def handle_of(text: str) -> str:
    """Returns the handle of a text: its hash, in letters and digits."""
    return f"t{digest(text, HANDLE_BYTES)}"


def read_archived(archive: Archive, counter: TokenCounter, limit: int) -> Tool:
    """Makes the tool that reads a span of a stored text, at most `limit` tokens per call."""

    def read(handle: str, start: int = 0, end: int | None = None) -> str:
        text = archive.get(handle)
        stop = len(text) if end is None else min(end, len(text))
        if not 0 <= start < stop:
            raise ValueError(
                f"there is nothing from {start} to {end}: the text has {len(text)} characters; give a start "
                f"below that, and an end above the start"
            )
        span = text[start : min(stop, start + BYTES_PER_TOKEN * limit)]
        if len(span) == stop - start and counter.count(span) <= limit:
            return span
        room = limit - counter.count(_more(len(text), len(text), handle))
        chars = max(1, ends(span, room, counter, tail=False)[0])
        return span[:chars] + _more(start + chars, stop, handle)

    return Tool(READ_ARCHIVED, tool(read).run, read_only=True)


def _more(start: int, end: int, handle: str) -> str:
    return f'\n[continues: read_archived(handle="{handle}", start={start}, end={end})]'
