"""Shows the progress of a training, on a terminal or as lines."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, Self

from memagent import terminal
from memagent.cli.options import Display
from memagent.terminal import on_terminal, shorten
from memagent_train.runs.progress import Board, PlainWatcher, SilentWatcher, line_of

if TYPE_CHECKING:
    from rich.console import RenderableType

    from memagent.tasks.statistics import Estimate


class LiveWatcher(SilentWatcher):
    """A title, a bar and counts on a terminal; steps and evaluations scroll above them."""

    def __init__(self, board: Board, title: str, stream: IO[str]) -> None:
        super().__init__(board)
        self._title = title
        self._screen = terminal.board(stream, self._state)

    def __enter__(self) -> Self:
        self._screen.start()
        return self

    def __exit__(self, *error: object) -> None:
        """Releases the terminal."""
        self._screen.stop()

    def _state(self) -> tuple[RenderableType, list[str]]:
        board = self.board
        return terminal.bar(board.fraction, board.left), [self._title, " · ".join(board.facts())]

    def note_step(self, step: int, figures: Mapping[str, Any]) -> None:
        """Counts, and leaves a line."""
        super().note_step(step, figures)
        self._screen.console.print(f"{step:>6,}  {line_of(figures)}")

    def note_evaluation(self, step: int, estimates: Mapping[int, Estimate]) -> None:
        """Counts, and leaves a line."""
        super().note_evaluation(step, estimates)
        self._screen.console.print(self.board.said)


def watcher(display: Display, board: Board, title: str) -> SilentWatcher:
    """Shows a session as `display` says; if standard output carries data, on standard error if it is a terminal."""
    if display is Display.PLAIN:
        return PlainWatcher(board)
    stream = sys.stdout if display is Display.FULL else sys.stderr
    if not on_terminal(stream):
        return SilentWatcher(board)
    return LiveWatcher(board, shorten(title, 200), stream)
