"""How a training goes on, drawn on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, Self

from memagent.cli.output import duration, shorten, terminal
from memagent_train.runs.progress import Board, SilentWatcher, line_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memagent.tasks.statistics import Estimate

REFRESH = 4
"""Times a second."""


class LiveWatcher(SilentWatcher):
    """A title, a bar and the last step's figures; steps and evaluations scroll by above them.

    Args:
        board: counts along.
        title: what is trained.
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

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Gives the terminal back."""
        self._live.stop()

    def stepped(self, step: int, figures: Mapping[str, Any]) -> None:
        """Counts, and leaves a line."""
        super().stepped(step, figures)
        self._console.print(f"{step:>6,}  {line_of(figures)}")

    def evaluated(self, step: int, estimates: Mapping[int, Estimate]) -> None:
        """Counts, and leaves a line."""
        super().evaluated(step, estimates)
        self._console.print(self.board.said)

    def _draw(self) -> RenderableType:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        board, width = self.board, self._console.width
        row = Table.grid(expand=True, padding=(0, 1))
        row.add_column(ratio=1)
        row.add_column(no_wrap=True)
        ahead = "" if board.left is None else f"{duration(board.left)} left"
        row.add_row(
            ProgressBar(total=1.0, completed=board.fraction),
            Text(f"{board.fraction:4.0%} {ahead}".rstrip()),
        )
        return Group(
            Text(shorten(self._title, width), style="bold"),
            row,
            Text(shorten(" · ".join(board.facts()), width), style="dim"),
        )
