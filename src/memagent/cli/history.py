"""What a run did, written from its events; the memories of a question as differences."""

from __future__ import annotations

from collections.abc import Iterable

from memagent.cli.changes import changes, words
from memagent.cli.results import CUT_OFF
from memagent.events import (
    Answered,
    ChunkRead,
    Event,
    MemoryKept,
    MemoryTruncated,
    MemoryUpdated,
    Neutralised,
    Retried,
    Settled,
    Stopped,
)
from memagent.terminal import Paper, plural

STYLES = {"=": "", "-": "red strike", "+": "green"}


def sent_again(event: Retried) -> str:
    """That a call was sent again, after which wait, and why."""
    waited = f" after {event.waited:.1f} s" if event.waited else ""
    return f"sent again{waited}: {event.reason}"


def made_harmless(count: int) -> str:
    """That look-alikes in a document or a result were neutralised."""
    return f"{plural(count, 'look-alike')} of prompt fields made harmless"


class Trace:
    """Writes what a run did from its events: what all runs have in common."""

    def __init__(self, paper: Paper) -> None:
        self._paper = paper

    def write(self, events: Iterable[Event]) -> None:
        """Writes a paragraph for each event that matters."""
        for event in events:
            self._event(event)
        self._flush()

    def _flush(self) -> None:
        """Writes what was held back until now."""

    def _event(self, event: Event) -> None:
        if isinstance(event, Stopped):
            self._note(f"stopped ({event.reason.replace('_', ' ')}): {event.detail}", "yellow")
        elif isinstance(event, Answered):
            self._flush()
            self._paper.line("")
            self._paper.line(("answer: ", "dim"), (event.answer.strip(), "bold"))
            if event.truncated:
                self._paper.line((CUT_OFF, "yellow"))

    def _note(self, text: str, style: str) -> None:
        self._flush()
        self._paper.line((text, style))


class History(Trace):
    """Writes what became of one question: a paragraph for each chunk that changed its memory, then the answer."""

    def __init__(self, paper: Paper, number: int = 0) -> None:
        super().__init__(paper)
        self._number, self._memory = number, ""
        self._same: tuple[int, int, str] | None = None
        """First and last chunk in a row after which the memory was the same, and why."""
        self._span: ChunkRead | None = None
        self._truncated: MemoryTruncated | None = None

    def _event(self, event: Event) -> None:
        if getattr(event, "question", self._number) != self._number:
            return
        match event:
            case ChunkRead():
                self._span = event
            case MemoryKept():
                self._unchanged(event.chunk, "kept")
            case MemoryTruncated():
                self._truncated = event
            case MemoryUpdated():
                self._updated(event)
            case Retried():
                where = "answer" if event.chunk is None else f"chunk {event.chunk}"
                self._note(f"{where} {sent_again(event)}", "yellow")
            case Settled():
                self._note(f"settled after chunk {event.chunk}: the rest was not read", "cyan")
            case Neutralised():
                self._note(f"chunk {event.chunk}: {made_harmless(event.count)}", "yellow")
            case _:
                super()._event(event)

    def _updated(self, event: MemoryUpdated) -> None:
        found, self._memory = changes(self._memory, event.memory), event.memory
        cut, self._truncated = self._truncated, None
        if not found and cut is None:
            self._unchanged(event.chunk, "rewritten as it was")
            return
        self._flush()
        where = how = ""
        if self._span is not None and self._span.chunk == event.chunk:
            where = f"  characters {self._span.start:,} to {self._span.end:,}"
        if cut is not None:
            how = f"  cut from {cut.tokens_before:,} to {cut.tokens_after:,}"
        where += f"  memory {event.tokens:,} tokens"
        self._paper.line((f"chunk {event.chunk}", "bold"), (where, "dim"), (how, "yellow"))
        for change in found:
            rewritten = bool(change.removed and change.added)
            for sign, text, style in ("-", change.removed, "red"), ("+", change.added, "green"):
                parts = [(text, style)]
                if rewritten:
                    parts = [
                        (part, STYLES[kind]) for kind, part in words(change) if kind in ("=", sign)
                    ]
                if text:
                    self._paper.line((f"{sign} ", style), *parts, indent=2, hang=2)

    def _unchanged(self, chunk: int, how: str) -> None:
        if self._same is None or self._same[2] != how:
            self._flush()
            self._same = (chunk, chunk, how)
        self._same = (self._same[0], chunk, how)

    def _flush(self) -> None:
        if self._same is not None:
            first, last, how = self._same
            which = f"chunk {first}" if first == last else f"chunks {first}-{last}"
            self._paper.line((f"{which} {how}", "dim"))
            self._same = None
