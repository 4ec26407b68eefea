"""Tallies a run's events: memories and answers, counts, speed, time left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Self

from memagent import events
from memagent.messages import Usage
from memagent.terminal import amount, duration
from memagent.texts import plural

if TYPE_CHECKING:
    from memagent.runstore import RunRecord, RunStore


@dataclass
class Notebook:
    """One question (or task): its previous and current memory, and its answer."""

    question: str
    memory: str = ""
    before: str = ""
    """The memory before its last change."""
    changed: int | None = None
    """The chunk with which the memory last changed."""
    tokens: int = 0
    read: int = 0
    """Chunks read for this question."""
    settled: bool = False
    answer: str | None = None
    truncated: bool = False
    """The answer was cut off by its token limit."""
    partial: bool = False
    """The answer is from the memory so far."""
    reason: str = ""
    """The stop reason's value; empty while the run continues."""
    detail: str = ""
    """Why there is no answer, or an incomplete one."""

    @property
    def finished(self) -> bool:
        """Whether it needs no more of the document."""
        return self.settled or (self.answer is not None and not self.partial)


@dataclass(eq=False)
class Tally:
    """Tallies the events of a reading or a tool session."""

    questions: Iterable[str] = ()
    """The run's questions, if its first event won't be fed."""
    _: KW_ONLY
    chars: int | None = None
    """Approximate characters of the document; None if unknown."""
    replayed: int = -1
    """Events up to this `seq` were committed by an earlier session."""
    clock: Callable[[], float] = time.monotonic
    """Clock, in monotonic seconds."""

    def __post_init__(self) -> None:
        self.started: events.RunStarted | None = None
        self.notebooks = list(map(Notebook, self.questions))
        self.latest: Notebook | None = None
        """The notebook that changed last."""
        self.chunks = 0
        """Chunks shown to the model, including the current one."""
        self.steps = self.summaries = 0
        """Steps and summaries of a tool session, else 0."""
        self.usage = Usage()
        self._begun = self.clock()
        self._chunk: events.ChunkRead | None = None
        self._waiting: set[int] = set()
        self._done = 0
        self._end = False
        self._copies = False
        """Whether events that a branch copied may follow: they come right after its start."""
        self._spoke = False
        """Whether the last reply called no tool."""
        self._answers = 0
        """Replies of a session that were answers."""
        self._live_tokens = 0
        self._live_from = 0.0

    @classmethod
    def of(cls, store: RunStore, record: RunRecord, after: int = -1) -> Self:
        """Tallies a stored run's events with `seq > after`."""
        tally = cls(record.binding["questions"])
        for event in store.events(record.id, after):
            tally.add(event)
        return tally

    def is_replay(self, event: events.Event) -> bool:
        """Returns whether an earlier session committed the event, or the run that this one branched from."""
        start = self.started.before if self._copies and self.started else 0
        chunk: int | None = getattr(event, "chunk", None)
        return event.seq <= self.replayed or (chunk is not None and chunk < start)

    def add(self, event: events.Event) -> None:
        """Adds one event."""
        match event:
            case events.RunStarted():
                self.started = event
                self.notebooks = list(map(Notebook, event.questions))
            case events.SessionStarted():
                self.notebooks = [Notebook(event.task)]
            case events.MessageSent():
                self.notebooks = [Notebook(event.text)]
            case events.ChunkRead():
                self._chunk, self.chunks, self._done = event, event.chunk + 1, event.start
                self._waiting = {n for n, book in enumerate(self.notebooks) if not book.finished}
            case events.MemoryUpdated() | events.MemoryKept():
                book = self.notebooks[event.question]
                book.read = max(book.read, event.chunk + 1)
                if isinstance(event, events.MemoryUpdated):
                    self.latest = book
                    book.before, book.memory = book.memory, event.memory
                    book.changed, book.tokens = event.chunk, event.tokens
                # Otherwise a question that was behind is catching up.
                if self._chunk is not None and self._chunk.chunk == event.chunk:
                    self._waiting.discard(event.question)
                    if not self._waiting:
                        self._done, self._end = self._chunk.end, self._chunk.last
            case events.Rereading():
                book = self.notebooks[event.question]
                book.before, book.memory = book.memory, events.memory_after(event, book.memory)
            case events.Acted():
                self.steps, self._spoke = event.step + 1 - self._answers, not event.calls
            case events.Compacted():
                self.summaries = max(self.summaries, event.compaction.stage)
            case events.Settled():
                self.notebooks[event.question].settled = True
            case events.Answered():
                book = self.notebooks[event.question]
                book.answer, book.truncated = event.answer, event.truncated
                book.partial = event.partial
                if not event.partial:
                    book.reason = "settled" if book.settled else "answered"
                    book.detail = events.CUT_OFF * event.truncated
                self.steps -= self._spoke  # the answer isn't a step
                self._answers += self._spoke
            case events.Stopped():
                book = self.notebooks[event.question]
                book.reason, book.detail = event.reason.value, event.detail
            case _:
                pass
        usage: Usage = getattr(event, "usage", Usage())
        self.usage += usage
        if self.is_replay(event):
            self._begun, self._live_from = self.clock(), self.fraction or 0.0
        else:
            self._copies = isinstance(event, events.RunStarted)
            self._live_tokens += usage.prompt_tokens + usage.completion_tokens

    @property
    def made(self) -> int:
        """Chunks read, or steps made."""
        return max((self.steps, *(book.read for book in self.notebooks)))

    @property
    def finished(self) -> int:
        """Chunks read for every question."""
        return self.chunks - bool(self._waiting)

    @property
    def fraction(self) -> float | None:
        """Share of the document that has been read, 0 to 1; None if its length is unknown."""
        if self._end:
            return 1.0
        # The length is estimated from the file's size, so only the last chunk makes it exactly 1.
        return min(self._done / self.chars, 0.99) if self.chars else None

    @property
    def elapsed(self) -> float:
        """Seconds of this session."""
        return self.clock() - self._begun

    @property
    def speed(self) -> float:
        """Prompt and completion tokens per second, in this session."""
        return self._live_tokens / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def left(self) -> float | None:
        """Seconds until the whole document is read, at this session's pace; None if unknown."""
        fraction = self.fraction
        if fraction is None or fraction - self._live_from < 0.005 or self.elapsed < 1:
            return None
        return self.elapsed * (1 - fraction) / (fraction - self._live_from)

    def facts(self) -> list[str]:
        """Returns the counts as parts of one line."""
        facts = [
            plural(self.chunks, "chunk"),
            plural(self.usage.calls, "call"),
            f"{amount(self.speed)} tokens/s",
            duration(self.elapsed),
        ]
        return facts + ([f"{self.usage.retries:,} sent again"] if self.usage.retries else [])
