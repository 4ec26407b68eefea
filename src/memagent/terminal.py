"""Terminal output for people: safe text, numbers and times, coloured lines, progress."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

REFRESH = 8
"""Progress redraws per second: smooth, but little work."""
PIPE_WIDTH = 100
"""Width of clipped lines if there is no terminal to report one."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters other than tab and line feed: a document must not steer the terminal it is shown on."""

Part: TypeAlias = "str | tuple[str, str]"
"""Text, or text with a rich style."""


def escape(error: Any) -> tuple[str, int]:
    """Replaces characters that a stream can't show by JSON escapes; a codec error handler."""
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def clean(text: str) -> str:
    """Replaces control characters by U+FFFD and line ends by line feeds."""
    return CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def shorten(text: str, width: int = PIPE_WIDTH) -> str:
    """Puts a text on one line of at most `width` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def amount(number: float) -> str:
    """Formats a count, rounded above ten thousand: `9,876`, `12.3k`, `4.56M`."""
    if number < 10_000:
        return f"{number:,.0f}"
    return f"{number / 1e3:.1f}k" if number < 999_950 else f"{number / 1e6:,.2f}M"


def duration(seconds: float) -> str:
    """Formats a duration: `4.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, remainder = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {remainder} s"


def moment(seconds: float) -> str:
    """Formats a time in the local zone, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def on_terminal(stream: IO[str]) -> bool:
    """Returns whether the stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def console(stream: IO[str]) -> Console:
    """Makes a console for a terminal (colours as `NO_COLOR` and the terminal allow)."""
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


def say(first: str, rest: str = "", *, style: str) -> None:
    """Writes one paragraph to standard error, its first words styled; wrapped and coloured only on a terminal."""
    Paper(sys.stderr, colour=on_terminal(sys.stderr)).line((first, style), f" {rest}".rstrip())


class Paper:
    """Lines on standard output or another stream, coloured and word-wrapped, or plain without `colour`.

    Control characters are made visible.
    """

    def __init__(self, stream: IO[str] | None = None, *, colour: bool) -> None:
        self._stream = stream or sys.stdout
        self._console = console(self._stream) if colour else None

    def line(self, *parts: Part, indent: int = 0, hang: int = 0) -> None:
        """Writes one paragraph, indented by `indent` columns, and wrapped lines by `hang` more."""
        pairs = [(part, "") if isinstance(part, str) else part for part in parts]
        clean_pairs = [(clean(text), style) for text, style in pairs]
        if self._console is None:
            lines = "".join(text for text, _ in clean_pairs).split("\n")
            print("\n".join((" " * indent + line).rstrip() for line in lines), file=self._stream)
            return
        from rich.padding import Padding
        from rich.text import Text

        text = Text.assemble(*clean_pairs)
        if hang:
            wrapped = text.wrap(self._console, max(1, self._console.width - indent - hang))
            text = Text("\n" + " " * hang).join(wrapped)
        self._console.print(Padding(text, (0, 0, 0, indent), expand=False) if text else "")

    def gist(self, text: str, style: str = "", *, indent: int = 0, end: str = "") -> None:
        """Writes as much of a text as fits one line of the terminal, or of `PIPE_WIDTH`, followed by `end`."""
        if self._console is None:
            self.line(shorten(text, PIPE_WIDTH - indent - len(end)) + end, indent=indent)
            return
        from rich.text import Text

        # Measured in cells: wide characters take two.
        line = Text(shorten(text, self._console.width), style=style)
        line.truncate(max(1, self._console.width - indent - len(end)), overflow="ellipsis")
        self._console.print(Text.assemble(" " * indent, line, (end, "dim")), no_wrap=True)

    def table(self, rows: list[tuple[str, str]]) -> None:
        """Writes `name  value` rows, the names dim and padded, further lines of a value aligned with its first."""
        width = max(len(name) for name, _ in rows) + 2
        if self._console is None:
            for name, value in rows:
                self.line(name.ljust(width), value.replace("\n", "\n" + " " * width))
            return
        from rich.table import Table
        from rich.text import Text

        table = Table.grid()
        table.add_column(width=width, style="dim")
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(name, Text(clean(value)))
        self._console.print(table)


def live(screen: Console, draw: Callable[[], RenderableType]) -> Live:
    """Redraws the bottom of a terminal during work; printed lines scroll above it.

    `draw` is called from another thread, `REFRESH` times per second.
    """
    from rich.live import Live

    return Live(
        console=screen,
        get_renderable=draw,
        refresh_per_second=REFRESH,
        transient=True,
        vertical_overflow="crop",
    )


def board(
    stream: IO[str], title: str, state: Callable[[], tuple[float, float | None, list[str]]]
) -> Live:
    """Draws a title, a bar (from the share done and the seconds left) and lines; all are removed at the end."""
    from rich.console import Group
    from rich.text import Text

    screen = console(stream)

    def draw() -> RenderableType:
        fraction, seconds, lines = state()
        return Group(
            Text(shorten(title, screen.width), style="bold"),
            bar(fraction, seconds),
            *(Text(shorten(line, screen.width), style="dim") for line in lines),
        )

    return live(screen, draw)


def bar(fraction: float | None, left: float | None, unknown: str = "") -> RenderableType:
    """Makes a bar with the percentage and the time left, or with `unknown` next to it if there is no fraction."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    row = Table.grid(expand=True, padding=(0, 1))
    row.add_column(ratio=1)
    row.add_column(no_wrap=True)
    if fraction is None:
        row.add_row(ProgressBar(total=None, pulse=True), unknown)
    else:
        note = "" if left is None or fraction >= 1 else f" {duration(left)} left"
        row.add_row(ProgressBar(total=1.0, completed=fraction), f"{fraction:4.0%}{note}")
    return row
