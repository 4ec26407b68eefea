"""Shows a run while it goes on: on a terminal, as lines, or not at all."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from memagent.cli.changes import gist
from memagent.cli.history import made_harmless, sent_again
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.cli.session import drive
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
from memagent.terminal import PIPE_WIDTH, amount, on_terminal, plural, shorten

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent, RunStream


class Watcher:
    """Counts, and shows nothing."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to put back."""

    def event(self, event: Event) -> None:
        """Takes note of an event of the run."""
        self.tally.add(event)


class PlainWatcher(Watcher):
    """Prints a line for each event that matters (`changes_only`: that changed a memory), without control codes."""

    def __init__(self, tally: Tally, *, changes_only: bool = False) -> None:
        super().__init__(tally)
        self._changes_only = changes_only
        self._truncated: dict[int, MemoryTruncated] = {}
        self._resumes = tally.replayed > 0

    def event(self, event: Event) -> None:
        """Prints what is worth a line."""
        tally = self.tally
        replayed = tally.is_replay(event)
        if self._resumes and not replayed:
            self._resumes = False
            done = f"{plural(tally.finished, 'chunk')} and {plural(tally.usage.calls, 'call')}"
            _say(f"resumed; {done} were done before")
        tally.add(event)
        if isinstance(event, RunStarted):
            _say(
                f"run {event.run_id}: {shorten(event.document, 60)}, {event.model}, window {amount(event.window)} "
                f"(chunk {amount(event.chunk_tokens)}, memory {amount(event.memory_tokens)})"
            )
        elif not replayed and (line := self._line(event)):
            _say(line)

    def _line(self, event: Event) -> str:
        match event:
            case MemoryTruncated():
                self._truncated[event.question] = event
            case MemoryUpdated():
                book = self.tally.notebooks[event.question]
                became = "unchanged" if book.memory == book.before else "updated"
                if cut := self._truncated.pop(event.question, None):
                    became = f"truncated {cut.tokens_before:,} -> {cut.tokens_after:,}"
                if not self._changes_only or became != "unchanged":
                    change = gist(book.before, book.memory, PIPE_WIDTH)
                    return f"{self._where(event)}{became:<10}{event.tokens:>6,} tokens  {change}"
            case MemoryKept() if not self._changes_only:
                return f"{self._where(event)}kept"
            case Neutralised():
                return f"chunk {event.chunk:<5} {made_harmless(event.count)}"
            case Retried():
                return f"{self._where(event)}{shorten(sent_again(event), PIPE_WIDTH)}"
            case Settled():
                return f"{self._where(event)}settled: the rest is not read"
            case _:
                pass
        return ""

    def _where(self, event: MemoryUpdated | MemoryKept | Retried | Settled) -> str:
        place = "answer" if event.chunk is None else f"chunk {event.chunk}"
        if len(self.tally.notebooks) > 1:
            return f"{place} question {event.question}".ljust(24)
        return f"{place:<12}"


def _say(line: str) -> None:
    # Flushed: somebody may be watching a pipe or a log.
    print(line.rstrip(), flush=True)


def watcher(display: Display, tally: Tally, *, changes_only: bool = False) -> Watcher:
    """Shows a run as `display` says.

    If standard output carries data (`json`, `none`), standard error gets a progress bar if it is a terminal.
    """
    if display is Display.PLAIN:
        return PlainWatcher(tally, changes_only=changes_only)
    full = display is Display.FULL
    if not full and not on_terminal(sys.stderr):
        return Watcher(tally)
    from memagent.cli.live import LiveWatcher

    return LiveWatcher(tally, sys.stdout if full else sys.stderr, memory=full)


def watch(agent: MemoryAgent, stream: RunStream, watcher: Watcher) -> None:
    """Runs a reading to its end, which the watcher follows; closes the agent."""

    async def read() -> None:
        try:
            async with stream:
                async for event in stream:
                    watcher.event(event)
        finally:
            await agent.aclose()

    with watcher:
        drive(read())
