"""A run on a terminal: a progress bar, and beneath it the memory as it changes."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from memagent.cli.changes import marked
from memagent.cli.progress import Notebook, Tally
from memagent.cli.watch import Watcher
from memagent.terminal import bar, clean, console, live, panel, plural, shorten

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

ROOM = 13
"""Lines of the screen that are not the memory's: title, bar, facts and frame (6), then answer, facts and prompt."""
LINE_EACH = 8
"""Most questions that get a line of their own."""


class LiveWatcher(Watcher):
    """Draws the state of a run; without `memory` the bar alone, which is removed at the end."""

    def __init__(self, tally: Tally, stream: IO[str], *, memory: bool = True) -> None:
        super().__init__(tally)
        self._memory, self._console = memory, console(stream)
        self._live = live(self._console, self._draw)

    def __enter__(self) -> LiveWatcher:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Draws the last state (if anything was read) and gives the terminal back."""
        self._live.transient = not self._memory or self.tally.usage.calls == 0
        self._live.stop()

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        tally, width = self.tally, self._console.width
        if (started := tally.started) is None:
            return Text("starting…", style="dim")
        progress = bar(tally, plural(tally.chunks, "chunk"))
        if not self._memory:
            return progress
        name = shorten(started.document, width - len(started.model) - 3)
        title = Text.assemble((name, "bold"), (f" · {started.model}", "dim"))
        drawn: list[RenderableType] = [title, progress]
        if len(started.questions) == 1:
            drawn.insert(1, Text(shorten(started.questions[0], width), style="cyan"))
        drawn.append(Text(shorten(" · ".join(tally.facts()), width), style="dim"))
        if tally.latest is not None:
            drawn += [*self._questions(), self._panel(tally.latest, started.memory_tokens)]
        # The cursor rests on an empty line, so that a terminal's echo of Ctrl-C moves nothing.
        return Group(*drawn, Text())

    def _questions(self) -> list[Text]:
        """A line for each question, if there are several."""
        from rich.text import Text

        books = self.tally.notebooks
        if len(books) == 1:
            return []
        width = self._console.width
        lines: list[Text] = []
        for number, book in enumerate(books[:LINE_EACH]):
            state = f"{'✓' if book.finished else '·'} {number} "
            at = "" if book.changed is None else f"{book.tokens:,} tokens, chunk {book.changed}"
            room = max(12, width - len(at) - 8)
            line = Text.assemble((state, "dim"), shorten(book.question, room))
            line.pad_right(max(1, width - len(line.plain) - len(at)))
            lines.append(line.append(at, style="dim"))
        more = [plural(len(books) - LINE_EACH, "more question")] if len(books) > LINE_EACH else []
        return lines + [Text(f"  and {rest}", style="dim") for rest in more]

    def _panel(self, book: Notebook, limit: int) -> RenderableType:
        """The memory that changed last, what is new in it in green; cut to the screen around what is new."""
        from rich.text import Text

        screen, books = self._console, self.tally.notebooks
        text = Text()
        for part, fresh in marked(book.before, book.memory):
            text.append(clean(part), style="green" if fresh else "")
        text.rstrip()
        lines = text.wrap(screen, max(10, screen.width - 4))
        questions = min(len(books), LINE_EACH + 1) if len(books) > 1 else 0
        room = max(3, screen.height - ROOM - questions)
        new = next((n for n, line in enumerate(lines) if line.spans), 0)
        first = max(0, min(new - 1, len(lines) - room))
        hidden = len(lines) - room
        which = f"memory {books.index(book)}" if questions else "memory"
        return panel(
            Text("\n").join(lines[first : first + room]),
            Text(f"{which} after chunk {book.changed} · {book.tokens:,} of {limit:,} tokens"),
            style="dim",
            subtitle=plural(hidden, "more line") if hidden > 0 else "",
        )
