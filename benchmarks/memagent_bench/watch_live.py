"""How a benchmark goes on, drawn on a terminal."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from memagent.cli.output import duration, shorten, terminal
from memagent_bench.watch import Board, SilentWatcher, line_of

if TYPE_CHECKING:
    from rich.console import RenderableType

REFRESH = 4
"""Times a second."""


class LiveWatcher(SilentWatcher):
    """A title, a bar and the counts; they are gone at the end.

    Args:
        board: counts along.
        title: what is measured.
        stream: a terminal.
    """

    def __init__(self, board: Board, title: str, stream: IO[str]) -> None:
        from rich.live import Live

        super().__init__(board)
        self._title = title
        self._console = terminal(stream)
        self._live = Live(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=REFRESH,
            transient=True,
        )

    def __enter__(self) -> LiveWatcher:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Gives the terminal back."""
        self._live.stop()

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        board, width = self.board, self._console.width
        row = Table.grid(expand=True, padding=(0, 1))
        row.add_column(ratio=1)
        row.add_column(no_wrap=True)
        fraction, left = board.fraction, board.left
        ahead = "" if left is None or fraction == 1 else f"{duration(left)} left"
        row.add_row(
            ProgressBar(total=1.0, completed=fraction), Text(f"{fraction:4.0%} {ahead}".rstrip())
        )
        latest = "" if board.latest is None else shorten(line_of(board.latest), width)
        return Group(
            Text(shorten(self._title, width), style="bold"),
            row,
            Text(shorten(" · ".join(board.facts()), width), style="dim"),
            Text(latest, style="dim"),
        )
