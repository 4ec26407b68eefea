"""Text for people: what may reach a terminal, how numbers and times look, lines with and without colour."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import IO, TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from rich.console import Console

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters other than tab and line feed: a document must not steer the terminal it is shown on."""

Part: TypeAlias = "str | tuple[str, str]"
"""Text, or text with a style of rich."""


def clean(text: str) -> str:
    """The text with every control character shown as U+FFFD, line ends as line feeds."""
    return CONTROL.sub("\ufffd", text.replace("\r\n", "\n"))


def shorten(text: str, width: int) -> str:
    """The text on one line of at most `width` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


def amount(number: float) -> str:
    """A count, rounded above ten thousand: `9,876`, `12.3k`, `4.56M`."""
    if number < 10_000:
        return f"{number:,.0f}"
    return f"{number / 1e3:.1f}k" if number < 999_950 else f"{number / 1e6:,.2f}M"


def plural(number: int, word: str) -> str:
    """`1 chunk`, `12 chunks`."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def duration(seconds: float) -> str:
    """`4.2 s`, `3 min 20 s`, `2 h 5 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def moment(seconds: float) -> str:
    """A time in the local zone, to the minute."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def on_terminal(stream: IO[str]) -> bool:
    """Whether the stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


def terminal(stream: IO[str]) -> Console:
    """A console for a terminal (colours as `NO_COLOR` and the terminal allow)."""
    from rich.console import Console

    return Console(file=stream, highlight=False, markup=False, emoji=False)


class Paper:
    """Lines on standard output: coloured and wrapped at words on a terminal, else as they are.

    Args:
        colour: True where standard output is a terminal and the display is `full`.
    """

    def __init__(self, *, colour: bool) -> None:
        self._console = terminal(sys.stdout) if colour else None

    def line(self, *parts: Part, indent: int = 0) -> None:
        """Writes one paragraph of parts; control characters in them are made visible."""
        given = [(part, "") if isinstance(part, str) else part for part in parts]
        cleaned = [(clean(text), style) for text, style in given]
        if self._console is None:
            text = "".join(text for text, _ in cleaned)
            pad = " " * indent
            print("\n".join((pad + line).rstrip() for line in text.split("\n")))
            return
        if not any(text for text, _ in cleaned):
            self._console.print()
            return
        from rich.padding import Padding
        from rich.text import Text

        self._console.print(Padding(Text.assemble(*cleaned), (0, 0, 0, indent), expand=False))

    def table(self, rows: list[tuple[str, str]]) -> None:
        """Writes `name  value` rows, the names dim and of one width."""
        width = max(len(name) for name, _ in rows) + 2
        for name, value in rows:
            self.line((name.ljust(width), "dim"), value)
