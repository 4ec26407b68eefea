"""Where texts are kept that left the context, and the tool that reads them back."""

from __future__ import annotations

import hashlib
import sqlite3
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from memagent.errors import UnknownHandle
from memagent.messages import ToolSpec
from memagent.threads import in_thread
from memagent.tokens.base import TokenCounter

HANDLE_DIGITS = 8
"""Hex digits: two of 10,000 texts share their first eight once in a hundred sessions, and get more then."""

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
    """Keeps texts. Calls may block, so they are made in threads, several at a time."""

    def put(self, text: str) -> str:
        """Keeps a text, and returns its handle: a short word, always the same for the same text."""
        ...

    def get(self, handle: str) -> str:
        """The text of a handle.

        Raises:
            UnknownHandle: there is none.
        """
        ...


class FileArchive:
    """Keeps texts in a temporary database on disk, which is gone when it is closed: RAM does not grow with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def put(self, text: str) -> str:
        """Keeps a text under the first digits of its hash: kept again, it has the same handle."""
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=32).hexdigest()
        with self._lock:
            table = self._opened()
            for digits in range(HANDLE_DIGITS, len(digest) + 1):
                handle = f"t{digest[:digits]}"
                found = _found(table, handle)
                if found is None:
                    kept = text.encode("utf-8", "surrogatepass")
                    table.execute("INSERT INTO texts VALUES (?, ?)", (handle, kept))
                if found is None or found == text:
                    return handle
        raise AssertionError("two texts have the same hash")  # pragma: no cover

    def get(self, handle: str) -> str:
        """The text of a handle.

        Raises:
            UnknownHandle: there is none.
        """
        with self._lock:
            text = _found(self._opened(), handle)
        if text is None:
            raise UnknownHandle(
                f"nothing is kept as {handle[:64]!r}: take a handle that the conversation names"
            )
        return text

    def close(self) -> None:
        """Deletes everything; a closed archive starts anew when it is used again."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            # No name: SQLite makes a file in the temporary folder, and deletes it at once where that is possible.
            self._connection = sqlite3.connect("", check_same_thread=False, isolation_level=None)
            self._connection.execute("CREATE TABLE texts (handle TEXT PRIMARY KEY, text BLOB)")
        return self._connection


def _found(table: sqlite3.Connection, handle: str) -> str | None:
    row = table.execute("SELECT text FROM texts WHERE handle = ?", (handle,)).fetchone()
    return None if row is None else row[0].decode("utf-8", "surrogatepass")


@dataclass(frozen=True)
class ReadArchived:
    """Runs `read_archived`: a span of a kept text, as much of it as a result may take."""

    archive: Archive
    counter: TokenCounter
    limit: int
    """Most tokens of what is returned."""

    async def __call__(self, arguments: Mapping[str, Any]) -> str:
        """Reads.

        Raises:
            UnknownHandle: there is no such text.
            TypeError: an argument is of another type.
            ValueError: the span is none.
        """
        handle, start, end = (arguments.get(name) for name in ("handle", "start", "end"))
        start = 0 if start is None else start
        if not isinstance(handle, str):
            raise TypeError(f"handle is {handle!r}: give the word that the text is kept as")
        for name, value in (("start", start), ("end", end)):
            if isinstance(value, bool) or not (
                isinstance(value, int) or (name == "end" and value is None)
            ):
                raise TypeError(f"{name} is {value!r}: give a number of characters")
        return await in_thread(self._read, handle, start, end)

    def _read(self, handle: str, start: int, end: int | None) -> str:
        text = self.archive.get(handle)
        stop = len(text) if end is None else min(end, len(text))
        if not 0 <= start < stop:
            raise ValueError(
                f"there is nothing from {start} to {end}: the text has {len(text)} characters; give a start "
                f"below that, and an end above the start"
            )
        span = text[start:stop]
        rest = self.limit - self.counter.count(_more(len(text), len(text), handle))
        chars = self.counter.measure(span).chars_within(max(rest, 1))
        while chars > 1 and self.counter.count(span[:chars]) > rest:
            chars = chars * 7 // 8
        if chars >= len(span):
            return span
        chars = max(chars, 1)
        return span[:chars] + _more(start + chars, stop, handle)


def _more(start: int, end: int, handle: str) -> str:
    return f'\n[it goes on: read_archived(handle="{handle}", start={start}, end={end})]'
