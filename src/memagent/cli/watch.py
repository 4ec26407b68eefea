"""Shows a run as it happens: on a terminal, as lines, or not at all."""

from __future__ import annotations

from contextlib import AbstractContextManager, aclosing, nullcontext
from typing import IO, TYPE_CHECKING, Any

from memagent import events
from memagent.cli.changes import gist, mark_changes
from memagent.cli.history import tell
from memagent.cli.options import Display, screen_of
from memagent.cli.progress import Notebook, Tally
from memagent.cli.session import drive
from memagent.terminal import amount, bar, clean, console, live, shorten
from memagent.texts import plural

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from memagent.memory.agent import MemoryAgent, RunStream

ROOM = 13
"""Screen lines not available to the memory: title, bar, facts and frame (6), then answer, facts and prompt."""
LINE_EACH = 8
"""Maximum number of questions that get a line each."""


class PlainWatcher:
    """Prints a line for each event that matters (`changes_only`: that changed a memory), without control codes."""

    def __init__(self, tally: Tally, *, changes_only: bool = False) -> None:
        self.tally, self._changes_only = tally, changes_only
        self._truncated: dict[int, events.MemoryTruncated] = {}
        self._resumes = tally.replayed > 0

    def add(self, event: events.Event) -> None:
        """Counts the event and, if it matters, prints a line."""
        tally = self.tally
        is_replay = tally.is_replay(event)
        if self._resumes and not is_replay:
            self._resumes = False
            progress = f"{plural(tally.finished, 'chunk')} and {plural(tally.usage.calls, 'call')}"
            _say(f"resumed; {progress} already done")
        tally.add(event)
        if isinstance(event, events.RunStarted):
            _say(
                f"run {event.run_id}: {shorten(event.document, 60)}, {event.model}, window {amount(event.window)} "
                f"(chunk {amount(event.chunk_tokens)}, memory {amount(event.memory_tokens)})"
                + (f", from chunk {event.before} of run {event.origin} on" if event.origin else "")
            )
        elif not is_replay and (line := self._line(event)):
            _say(line)

    def _line(self, event: events.Event) -> str:
        match event:
            case events.MemoryTruncated():
                self._truncated[event.question] = event
            case events.MemoryUpdated():
                book = self.tally.notebooks[event.question]
                label = "unchanged" if book.memory == book.before else "updated"
                if cut := self._truncated.pop(event.question, None):
                    label = f"truncated {cut.tokens_before:,} -> {cut.tokens_after:,}"
                if not self._changes_only or label != "unchanged":
                    change = gist(book.before, book.memory)
                    return f"{self._where(event)}{label:<10}{event.tokens:>6,} tokens  {change}"
            case events.MemoryKept() if not self._changes_only:
                return f"{self._where(event)}kept"
            case events.Neutralised():
                return f"chunk {event.chunk:<5} {tell(event)}"
            case events.Rereading():
                return tell(event)
            case events.Settled():
                return f"{self._where(event)}settled: the rest is not read"
            case _ if (text := tell(event)) and getattr(event, "invalid", True):
                return f"{self._where(event)}{shorten(text)}"
            case _:
                pass
        return ""

    def _where(self, event: Any) -> str:
        """Names the chunk and the question of an event that has both."""
        place = "answer" if event.chunk is None else f"chunk {event.chunk}"
        if len(self.tally.notebooks) > 1:
            return f"{place} question {event.question}".ljust(24)
        return f"{place:<12}"


def _say(line: str) -> None:
    # Flushed, since somebody may be watching a pipe or a log.
    print(line.rstrip(), flush=True)


class LiveWatcher(AbstractContextManager[None]):
    """Draws a tally's progress; without `memory`, only the bar, which is removed at the end."""

    def __init__(self, tally: Tally, stream: IO[str], *, memory: bool = True) -> None:
        self.tally, self._memory, self._console = tally, memory, console(stream)
        self._live = live(self._console, self._draw)

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(self, *error: object) -> None:
        """Draws the last state (if anything was read) and releases the terminal."""
        self._live.transient = not self._memory or self.tally.usage.calls == 0
        self._live.stop()

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        tally, width = self.tally, self._console.width
        if (started := tally.started) is None:
            return Text("starting…", style="dim")
        progress = bar(tally.fraction, tally.left, plural(tally.chunks, "chunk"))
        if not self._memory:
            return progress
        name = shorten(started.document, width - len(started.model) - 3)
        title = Text.assemble((name, "bold"), (f" · {started.model}", "dim"))
        rows: list[RenderableType] = [title]
        if len(started.questions) == 1:
            rows.append(Text(shorten(started.questions[0], width), style="cyan"))
        rows += [progress, Text(shorten(" · ".join(tally.facts()), width), style="dim")]
        if tally.latest is not None:
            rows += [*self._questions(), self._panel(tally.latest, started.memory_tokens)]
        # The cursor rests on an empty line, so that the echo of Ctrl-C moves nothing.
        return Group(*rows, Text())

    def _questions(self) -> list[Text]:
        """Makes a line for each question, if there are several."""
        from rich.text import Text

        books = self.tally.notebooks
        if len(books) == 1:
            return []
        width = self._console.width
        lines: list[Text] = []
        for number, book in enumerate(books[:LINE_EACH]):
            state = f"{'✓' if book.finished else '·'} {number} "
            status = "" if book.changed is None else f"{book.tokens:,} tokens, chunk {book.changed}"
            room = max(12, width - len(status) - 8)
            line = Text.assemble((state, "dim"), shorten(book.question, room))
            line.truncate(room + len(state), overflow="ellipsis")  # a character may take two cells
            line.pad_right(max(1, width - line.cell_len - len(status)))
            lines.append(line.append(status, style="dim"))
        if len(books) > LINE_EACH:
            more = plural(len(books) - LINE_EACH, "more question")
            lines.append(Text(f"  and {more}", style="dim"))
        return lines

    def _panel(self, book: Notebook, limit: int) -> RenderableType:
        """Draws the memory that changed last, with new text in green; cut to fit the screen around the new text."""
        from rich.panel import Panel
        from rich.text import Text

        screen, books = self._console, self.tally.notebooks
        text = Text()
        for part, fresh in mark_changes(book.before, book.memory):
            text.append(clean(part), style="green" if fresh else "")
        text.rstrip()
        lines = text.wrap(screen, max(10, screen.width - 4))
        questions = min(len(books), LINE_EACH + 1) if len(books) > 1 else 0
        room = max(3, screen.height - ROOM - questions)
        new = next((n for n, line in enumerate(lines) if line.spans), 0)
        first = max(0, min(new - 1, len(lines) - room))
        hidden = len(lines) - room
        name = f"memory {books.index(book)}" if questions else "memory"
        return Panel(
            Text("\n").join(lines[first : first + room]),
            title=Text(f"{name} after chunk {book.changed} · {book.tokens:,} of {limit:,} tokens"),
            title_align="left",
            subtitle=plural(hidden, "more line") if hidden > 0 else None,
            subtitle_align="right",
            border_style="dim",
        )


def watch(
    agent: MemoryAgent,
    stream: RunStream,
    tally: Tally,
    display: Display,
    *,
    changes_only: bool = False,
) -> None:
    """Runs a reading to its end, shows it as `display` says, and closes the agent.

    If standard output carries data (`json`, `none`), a progress bar goes to standard error if that is a terminal.
    """
    add = tally.add
    screen: AbstractContextManager[None] = nullcontext()
    if display is Display.PLAIN:
        add = PlainWatcher(tally, changes_only=changes_only).add
    elif terminal := screen_of(display):
        screen = LiveWatcher(tally, terminal, memory=display is Display.FULL)

    async def read() -> None:
        async with aclosing(agent), stream:
            async for event in stream:
                add(event)

    with screen:
        drive(read())
