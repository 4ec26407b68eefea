"""What is known of a run while it goes on: counts, speed, time left, memories."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from memagent.events import (
    Answered,
    ChunkRead,
    Event,
    MemoryKept,
    MemoryTruncated,
    MemoryUpdated,
    RunStarted,
    Settled,
    Stopped,
)
from memagent.messages import Usage


@dataclass
class Notebook:
    """The memory of one question, as it was and as it is."""

    question: str
    memory: str = ""
    before: str = ""
    """The memory before its last change."""
    changed: int | None = None
    """The chunk of that change."""
    tokens: int = 0
    through: bool = False
    """Nothing more is read for it: it is settled, or answered."""


class Tally:
    """Adds up the events of a run.

    Args:
        chars: characters of the document, roughly; None where nobody knows.
        replayed: events up to this `seq` were committed by an earlier session.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        *,
        chars: int | None = None,
        replayed: int = -1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.chars, self.replayed = chars, replayed
        self.started: RunStarted | None = None
        self.notebooks: list[Notebook] = []
        self.latest: Notebook | None = None
        """The notebook that changed last."""
        self.chunks = 0
        """Chunks that were shown to the model, the one at hand included."""
        self.usage = Usage()
        self._clock = clock
        self._begun = clock()
        self._chunk: ChunkRead | None = None
        self._waiting: set[int] = set()
        self._done = 0
        self._end = False
        self._live_tokens = 0
        self._live_from = 0.0

    def is_replay(self, event: Event) -> bool:
        """Whether an earlier session committed the event."""
        return event.seq <= self.replayed

    def add(self, event: Event) -> None:
        """Takes note of one event."""
        match event:
            case RunStarted():
                self.started = event
                self.notebooks = [Notebook(question) for question in event.questions]
            case ChunkRead():
                self._chunk, self.chunks, self._done = event, event.chunk + 1, event.start
                self._waiting = {n for n, book in enumerate(self.notebooks) if not book.through}
            case MemoryUpdated():
                book = self.notebooks[event.question]
                book.before, book.memory = book.memory, event.memory
                book.changed, book.tokens = event.chunk, event.tokens
                self.latest = book
                self._step(event, event.usage)
            case MemoryKept():
                self._step(event, event.usage)
            case Settled():
                self.notebooks[event.question].through = True
            case Answered():
                self.notebooks[event.question].through = True
                self._count(event, event.usage)
            case Stopped():
                self._count(event, event.usage)
            case _:
                pass
        if self.is_replay(event):
            self._begun, self._live_from = self._clock(), self.fraction or 0.0

    def _step(self, event: MemoryUpdated | MemoryKept, usage: Usage) -> None:
        self._count(event, usage)
        if self._chunk is None or self._chunk.chunk != event.chunk:
            return  # a question that was behind catches up
        self._waiting.discard(event.question)
        if not self._waiting:
            self._done, self._end = self._chunk.end, self._chunk.last

    def _count(self, event: Event, usage: Usage) -> None:
        self.usage += usage
        if not self.is_replay(event):
            self._live_tokens += usage.prompt_tokens + usage.completion_tokens

    @property
    def finished(self) -> int:
        """Chunks that every question is through with."""
        return self.chunks - bool(self._waiting)

    @property
    def fraction(self) -> float | None:
        """How much of the document is read, 0 to 1; None where its length is unknown."""
        if self._end:
            return 1.0
        # The length is a guess from the file's size, so only the last chunk makes it whole.
        return min(self._done / self.chars, 0.99) if self.chars else None

    @property
    def elapsed(self) -> float:
        """Seconds of this session."""
        return self._clock() - self._begun

    @property
    def speed(self) -> float:
        """Prompt and completion tokens a second, in this session."""
        return self._live_tokens / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until the document is read, at this session's pace; None where nobody can tell."""
        fraction = self.fraction
        if fraction is None or fraction - self._live_from < 0.005 or self.elapsed < 1:
            return None
        return self.elapsed * (1 - fraction) / (fraction - self._live_from)


def change_of(book: Notebook, truncated: MemoryTruncated | None) -> str:
    """What became of a memory, in a word."""
    if truncated is not None:
        return f"truncated {truncated.tokens_before:,} -> {truncated.tokens_after:,}"
    return "unchanged" if book.memory == book.before else "updated"
