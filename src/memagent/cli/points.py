"""The memory of a long reading at several points."""

from __future__ import annotations

from dataclasses import dataclass

from memagent.cli.progress import Tally
from memagent.cli.session import Watcher
from memagent.events import ChunkRead, Event, MemoryUpdated
from memagent.terminal import amount, duration, shorten

GIST = 70
"""Characters shown of a memory."""


@dataclass(frozen=True)
class Point:
    """A memory, and where it was written."""

    share: float
    """Of the document that was read, 0 to 1."""
    chunk: int
    memory: str
    needle: bool
    """Whether the needle had just been read."""

    def line(self) -> str:
        """The point on one line."""
        memory = shorten(self.memory, GIST) or "(empty)"
        return f"{self.share:>4.0%}  {'needle read: ' if self.needle else ''}{memory}"


class PointsWatcher:
    """Notes the memory at ten points of a document, and behind its needle.

    Args:
        inner: shows the run, and counts with the same tally.
        tally: of the run.
        chars: of the document.
        needle: the character behind the needle.
        say: whether to print each point at once, with the speed and the time left.
    """

    def __init__(
        self, inner: Watcher, tally: Tally, *, chars: int, needle: int, say: bool = False
    ) -> None:
        self._inner, self._tally = inner, tally
        self._chars, self._needle, self._say = chars, needle, say
        tenths = [chars * tenth // 10 for tenth in range(1, 10)]
        self._marks = sorted({chars // 100, *tenths, needle})
        self._chunk: ChunkRead | None = None
        self.points: list[Point] = []

    def __enter__(self) -> PointsWatcher:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Leaves the inner watcher."""
        self._inner.__exit__(*error)

    def event(self, event: Event) -> None:
        """Passes the event on, and notes the memory where a mark was passed."""
        self._inner.event(event)
        if isinstance(event, ChunkRead):
            self._chunk = event
        elif isinstance(event, MemoryUpdated) and self._chunk is not None:
            self._note(event, self._chunk)

    def _note(self, event: MemoryUpdated, chunk: ChunkRead) -> None:
        passed = [mark for mark in self._marks if mark <= chunk.end]
        if not passed and not chunk.last:
            return
        self._marks = self._marks[len(passed) :]
        share = 1.0 if chunk.last else chunk.end / self._chars
        point = Point(share, event.chunk, event.memory, self._needle in passed)
        self.points.append(point)
        if self._say:
            print(f"{point.line()}{self._pace()}", flush=True)

    def _pace(self) -> str:
        left = self._tally.left
        if not left:
            return ""
        return f"  [{amount(self._tally.speed)} tokens/s, {duration(left)} left]"
