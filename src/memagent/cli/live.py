"""A run on a terminal: a progress bar, and beneath it the memory as it changes."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from memagent.cli.changes import marked
from memagent.cli.progress import Notebook, Tally
from memagent.events import Event, RunStarted
from memagent.terminal import amount, clean, console, duration, plural, shorten

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

REFRESH = 8
"""Times a second the screen is drawn: smooth to the eye, and little work."""
ROOM = 13
"""Lines of the screen that are not the memory's: title, bar, facts and frame (6), then answer, facts and prompt."""
LINE_EACH = 8
"""Most questions that get a line of their own."""


class LiveWatcher:
    """Draws the state of a run at most `REFRESH` times a second.

    Args:
        tally: counts along.
        stream: a terminal.
        memory: False draws the bar alone, and removes it at the end.
    """

    def __init__(self, tally: Tally, stream: IO[str], *, memory: bool = True) -> None:
        from rich.live import Live

        self._tally, self._memory = tally, memory
        self._console = console(stream)
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=REFRESH,
            transient=not memory,
            vertical_overflow="crop",
        )

    def __enter__(self) -> LiveWatcher:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Draws the last state (if anything was read) and gives the terminal back."""
        self._live.transient |= self._tally.usage.calls == 0
        self._live.stop()

    def event(self, event: Event) -> None:
        """Takes note; drawing happens by itself."""
        self._tally.add(event)

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        tally = self._tally
        if tally.started is None:
            return Text("starting…", style="dim")
        if not self._memory:
            return self._bar()
        drawn: list[RenderableType] = [*self._title(tally.started), self._bar(), self._facts()]
        if tally.latest is not None:
            drawn += [*self._questions(), memory_panel(tally.latest, tally, self._console)]
        # The cursor rests on an empty line, so that a terminal's echo of Ctrl-C moves nothing.
        return Group(*drawn, Text())

    def _title(self, started: RunStarted) -> list[Text]:
        from rich.text import Text

        width = self._console.width
        named = shorten(started.document, width - len(started.model) - 3)
        lines = [Text.assemble((named, "bold"), (f" · {started.model}", "dim"))]
        if len(started.questions) == 1:
            lines.append(Text(shorten(started.questions[0], width), style="cyan"))
        return lines

    def _bar(self) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        tally = self._tally
        fraction, left = tally.fraction, tally.left
        row = Table.grid(expand=True, padding=(0, 1))
        row.add_column(ratio=1)
        row.add_column(no_wrap=True)
        if fraction is None:
            row.add_row(ProgressBar(total=None, pulse=True), Text(plural(tally.chunks, "chunk")))
        else:
            ahead = "" if left is None or fraction >= 1 else f"{duration(left)} left"
            row.add_row(
                ProgressBar(total=1.0, completed=fraction),
                Text(f"{fraction:4.0%} {ahead}".rstrip()),
            )
        return row

    def _facts(self) -> Text:
        from rich.text import Text

        tally = self._tally
        facts = [
            plural(tally.chunks, "chunk"),
            plural(tally.usage.calls, "call"),
            f"{amount(tally.speed)} tokens/s",
            duration(tally.elapsed),
        ]
        if tally.usage.retries:
            facts.append(f"{tally.usage.retries:,} sent again")
        return Text(" · ".join(facts), style="dim", no_wrap=True, overflow="ellipsis")

    def _questions(self) -> list[Text]:
        from rich.text import Text

        books = self._tally.notebooks
        if len(books) == 1:
            return []
        width = self._console.width
        lines: list[Text] = []
        for number, book in enumerate(books[:LINE_EACH]):
            state = "✓" if book.through else "·"
            at = "" if book.changed is None else f"{book.tokens:,} tokens, chunk {book.changed}"
            asked = shorten(book.question, max(12, width - len(at) - 8))
            line = Text.assemble((f"{state} {number} ", "dim"), asked)
            line.pad_right(max(1, width - len(line.plain) - len(at)))
            lines.append(line.append(at, style="dim"))
        if len(books) > LINE_EACH:
            lines.append(Text(f"  and {len(books) - LINE_EACH} more questions", style="dim"))
        return lines


def memory_panel(book: Notebook, tally: Tally, console: Console) -> RenderableType:
    """The memory that changed last, what is new in it in green; cut to the screen around what is new."""
    from rich import box
    from rich.panel import Panel
    from rich.text import Text

    parts = marked(book.before, book.memory)
    text = Text()
    for part, fresh in parts:
        text.append(clean(part), style="green" if fresh else "")
    text.rstrip()
    lines = text.wrap(console, max(10, console.width - 4))
    questions = min(len(tally.notebooks), LINE_EACH + 1) if len(tally.notebooks) > 1 else 0
    room = max(3, console.height - ROOM - questions)
    new = next((n for n, line in enumerate(lines) if line.spans), 0)
    first = max(0, min(new - 1, len(lines) - room))
    hidden = len(lines) - room
    shown = Text("\n").join(lines[first : first + room])
    limit = "" if tally.started is None else f" of {tally.started.memory_tokens:,}"
    which = f"memory {tally.notebooks.index(book)}" if questions else "memory"
    return Panel(
        shown,
        title=f"{which} after chunk {book.changed} · {book.tokens:,}{limit} tokens",
        title_align="left",
        subtitle=f"{hidden} more lines" if hidden > 0 else None,
        subtitle_align="right",
        border_style="dim",
        box=box.ROUNDED,
        padding=(0, 1),
    )
