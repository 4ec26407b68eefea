"""Shows the progress of training, on a terminal or as lines."""

from collections.abc import Mapping
from typing import IO, Any

from memagent import terminal
from memagent.cli.options import Display, screen_of
from memagent_train.cli.going import Going
from memagent_train.runs.progress import Board, PlainWatcher, SilentWatcher, line_of


class LiveWatcher(SilentWatcher):
    """A title, a bar and counts on a terminal; steps and evaluations scroll above them."""

    def __init__(self, board: Board, title: str, stream: IO[str]) -> None:
        super().__init__(board)
        self.screen = screen = terminal.board(stream, title, self._state)
        self._print = screen.console.print

    def _state(self) -> tuple[float, float | None, list[str]]:
        return self.board.fraction, self.board.left, [" · ".join(self.board.facts())]

    def note_step(self, step: int, figures: Mapping[str, Any]) -> None:
        """Counts the step and prints a line."""
        super().note_step(step, figures)
        self._print(f"{step:>6,}  {line_of(figures)}")

    def note_evaluation(self, step: int, found: Mapping[str, Mapping[str, Any]]) -> None:
        """Counts the evaluation and prints a line."""
        super().note_evaluation(step, found)
        self._print(self.board.said)


def watcher(going: Going, title: str, board: Board) -> SilentWatcher:
    """Marks the session as begun and returns the watcher for its display."""
    going.begun = True
    if stream := screen_of(going.display):
        return LiveWatcher(board, title, stream)
    return PlainWatcher(board) if going.display is Display.PLAIN else SilentWatcher(board)
