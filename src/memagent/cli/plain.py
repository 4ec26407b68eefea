"""A run as lines: one for each event that matters, without control codes."""

from __future__ import annotations

from memagent.cli.changes import gist
from memagent.cli.progress import Tally, change_of
from memagent.events import (
    Event,
    MemoryKept,
    MemoryTruncated,
    MemoryUpdated,
    Neutralised,
    Retried,
    RunStarted,
    Settled,
)
from memagent.terminal import amount, plural, shorten

GIST = 100
"""Characters shown of what changed in a memory."""


class PlainWatcher:
    """Prints lines as the events come.

    Args:
        tally: counts along.
        changes_only: leave out chunks that changed nothing.
    """

    def __init__(self, tally: Tally, *, changes_only: bool = False) -> None:
        self._tally, self._changes_only = tally, changes_only
        self._truncated: dict[int, MemoryTruncated] = {}
        self._told = False

    def __enter__(self) -> PlainWatcher:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to put back."""

    def event(self, event: Event) -> None:
        """Prints what is worth a line."""
        if self._tally.replayed > 0 and not self._told and not self._tally.is_replay(event):
            self._told = True
            chunks = plural(self._tally.finished, "chunk")
            self._say(
                f"taken up again; {chunks} and {plural(self._tally.usage.calls, 'call')} were done before"
            )
        self._tally.add(event)
        if isinstance(event, RunStarted):
            self._say(_opening(event))
        if self._tally.is_replay(event):
            return
        line = self._line(event)
        if line:
            self._say(line)

    def _line(self, event: Event) -> str:
        match event:
            case MemoryTruncated():
                self._truncated[event.question] = event
                return ""
            case MemoryUpdated():
                book = self._tally.notebooks[event.question]
                became = change_of(book, self._truncated.pop(event.question, None))
                if self._changes_only and became == "unchanged":
                    return ""
                change = gist(book.before, book.memory, GIST)
                return f"{self._where(event)}{became:<10}{event.tokens:>6,} tokens  {change}"
            case MemoryKept():
                return "" if self._changes_only else f"{self._where(event)}kept"
            case Neutralised():
                return f"chunk {event.chunk:<5} {event.count:,} look-alikes of prompt fields made harmless"
            case Retried():
                waited = f" after {event.waited:.1f} s" if event.waited else ""
                return f"{self._where(event)}sent again{waited}: {shorten(event.reason, GIST)}"
            case Settled():
                return f"{self._where(event)}settled: the rest is not read"
            case _:
                return ""

    def _where(self, event: MemoryUpdated | MemoryKept | Retried | Settled) -> str:
        place = "answer" if event.chunk is None else f"chunk {event.chunk}"
        if len(self._tally.notebooks) > 1:
            place += f" question {event.question}"
            return f"{place:<24}"
        return f"{place:<12}"

    def _say(self, line: str) -> None:
        # Flushed: somebody may be watching a pipe or a log.
        print(line.rstrip(), flush=True)


def _opening(event: RunStarted) -> str:
    return (
        f"run {event.run_id}: {shorten(event.document, 60)}, {event.model}, window {amount(event.window)} "
        f"(chunk {amount(event.chunk_tokens)}, memory {amount(event.memory_tokens)})"
    )
