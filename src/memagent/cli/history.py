"""What a run did, written from its events; the memories of a question as differences."""

from __future__ import annotations

from collections.abc import Iterable

from memagent.cli.changes import Change, changes, words
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
from memagent.terminal import Paper, Part, plural

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
        match event:
            case Stopped():
                self._note(f"stopped ({event.reason.replace('_', ' ')}): {event.detail}", "yellow")
            case Answered():
                self._flush()
                self._paper.line("")
                self._paper.line(("answer: ", "dim"), (event.answer.strip(), "bold"))
                if event.truncated:
                    self._paper.line((CUT_OFF, "yellow"))
            case _:
                pass

    def _note(self, text: str, style: str) -> None:
        self._flush()
        self._paper.line((text, style))


class History(Trace):
    """Writes what became of one question: a paragraph for each chunk that changed its memory, then the answer."""

    def __init__(self, paper: Paper, question: str, number: int, *, many: bool) -> None:
        super().__init__(paper)
        self._number = number
        self._memory = ""
        self._same: tuple[int, int, str] | None = None
        """First and last chunk in a row after which the memory was the same, and why."""
        self._span: ChunkRead | None = None
        self._truncated: MemoryTruncated | None = None
        paper.line("")
        if many:
            paper.line((f"question {number}: {question}", "bold cyan"))

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
        found = changes(self._memory, event.memory)
        truncated, self._truncated = self._truncated, None
        self._memory = event.memory
        if not found and truncated is None:
            self._unchanged(event.chunk, "rewritten as it was")
            return
        self._flush()
        span = ""
        if self._span is not None and self._span.chunk == event.chunk:
            span = f"  characters {self._span.start:,} to {self._span.end:,}"
        head: list[Part] = [(f"chunk {event.chunk}", "bold"), (span, "dim")]
        head.append((f"  memory {event.tokens:,} tokens", "dim"))
        if truncated is not None:
            cut = f"  cut from {truncated.tokens_before:,} to {truncated.tokens_after:,}"
            head.append((cut, "yellow"))
        self._paper.line(*head)
        for change in found:
            self._change(change)

    def _change(self, change: Change) -> None:
        if change.removed and change.added:
            parts = list(words(change))
            removed = [(text, STYLES[kind]) for kind, text in parts if kind != "+"]
            added = [(text, STYLES[kind]) for kind, text in parts if kind != "-"]
            self._paper.line(("- ", "red"), *removed, indent=2, hang=2)
            self._paper.line(("+ ", "green"), *added, indent=2, hang=2)
        elif change.added:
            self._paper.line((f"+ {change.added}", "green"), indent=2, hang=2)
        else:
            self._paper.line((f"- {change.removed}", "red"), indent=2, hang=2)

    def _unchanged(self, chunk: int, how: str) -> None:
        if self._same is not None and self._same[2] == how:
            self._same = (self._same[0], chunk, how)
        else:
            self._flush()
            self._same = (chunk, chunk, how)

    def _flush(self) -> None:
        if self._same is None:
            return
        first, last, how = self._same
        self._same = None
        which = f"chunk {first}" if first == last else f"chunks {first}-{last}"
        self._paper.line((f"{which} {how}", "dim"))
