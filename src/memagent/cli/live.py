"""A run on a terminal: a progress bar, and beneath it the memory as it changes."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from memagent.cli.changes import marked
from memagent.cli.progress import Notebook, Tally
from memagent.cli.watch import Watcher
from memagent.events import RunStarted
from memagent.terminal import Screen, bar, clean, panel, plural, shorten

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

ROOM = 13
"""Lines of the screen that are not the memory's: title, bar, facts and frame (6), then answer, facts and prompt."""
LINE_EACH = 8
"""Most questions that get a line of their own."""


class LiveWatcher(Watcher):
    """Draws the state of a run; without `memory` the bar alone, which is removed at the end."""

    def __init__(self, tally: Tally, stream: IO[str], *, memory: bool = True) -> None:
        super().__init__(tally)
        self._memory = memory
        self._screen = Screen(stream, self._draw)

    def __enter__(self) -> LiveWatcher:
        self._screen.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Draws the last state (if anything was read) and gives the terminal back."""
        self._screen.keep = self._memory and self.tally.usage.calls > 0
        self._screen.__exit__(*error)

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        tally = self.tally
        if tally.started is None:
            return Text("starting…", style="dim")
        progress = bar(tally, plural(tally.chunks, "chunk"))
        if not self._memory:
            return progress
        facts = Text(" · ".join(tally.facts()), style="dim", no_wrap=True, overflow="ellipsis")
        drawn: list[RenderableType] = [*self._title(tally.started), progress, facts]
        if tally.latest is not None:
            drawn += [
                *self._questions(),
                memory_panel(tally.latest, tally, self._screen.console),
            ]
        # The cursor rests on an empty line, so that a terminal's echo of Ctrl-C moves nothing.
        return Group(*drawn, Text())

    def _title(self, started: RunStarted) -> list[Text]:
        from rich.text import Text

        width = self._screen.console.width
        named = shorten(started.document, width - len(started.model) - 3)
        lines = [Text.assemble((named, "bold"), (f" · {started.model}", "dim"))]
        if len(started.questions) == 1:
            lines.append(Text(shorten(started.questions[0], width), style="cyan"))
        return lines

    def _questions(self) -> list[Text]:
        from rich.text import Text

        books = self.tally.notebooks
        if len(books) == 1:
            return []
        width = self._screen.console.width
        lines: list[Text] = []
        for number, book in enumerate(books[:LINE_EACH]):
            state = "✓" if book.finished else "·"
            at = "" if book.changed is None else f"{book.tokens:,} tokens, chunk {book.changed}"
            asked = shorten(book.question, max(12, width - len(at) - 8))
            line = Text.assemble((f"{state} {number} ", "dim"), asked)
            line.pad_right(max(1, width - len(line.plain) - len(at)))
            lines.append(line.append(at, style="dim"))
        if len(books) > LINE_EACH:
            more = plural(len(books) - LINE_EACH, "more question")
            lines.append(Text(f"  and {more}", style="dim"))
        return lines


def memory_panel(book: Notebook, tally: Tally, console: Console) -> RenderableType:
    """The memory that changed last, what is new in it in green; cut to the screen around what is new."""
    from rich.text import Text

    text = Text()
    for part, fresh in marked(book.before, book.memory):
        text.append(clean(part), style="green" if fresh else "")
    text.rstrip()
    lines = text.wrap(console, max(10, console.width - 4))
    questions = min(len(tally.notebooks), LINE_EACH + 1) if len(tally.notebooks) > 1 else 0
    room = max(3, console.height - ROOM - questions)
    new = next((n for n, line in enumerate(lines) if line.spans), 0)
    first = max(0, min(new - 1, len(lines) - room))
    hidden = len(lines) - room
    limit = "" if tally.started is None else f" of {tally.started.memory_tokens:,}"
    which = f"memory {tally.notebooks.index(book)}" if questions else "memory"
    return panel(
        Text("\n").join(lines[first : first + room]),
        f"{which} after chunk {book.changed} · {book.tokens:,}{limit} tokens",
        style="dim",
        subtitle=plural(hidden, "more line") if hidden > 0 else None,
    )
