"""Shows how a training goes on: on a terminal, or in lines."""

from __future__ import annotations

import sys

from memagent.cli.options import Display
from memagent.cli.output import on_terminal, shorten
from memagent_train.runs.progress import Board, PlainWatcher, SilentWatcher


def watcher(display: Display, board: Board, title: str) -> SilentWatcher:
    """Shows a session as `display` says; where standard output carries data, a terminal's standard error is used."""
    if display is Display.PLAIN:
        return PlainWatcher(board)
    stream = sys.stdout if display is Display.FULL else sys.stderr
    if not on_terminal(stream):
        return SilentWatcher(board)
    from memagent_train.cli.watch_live import LiveWatcher

    return LiveWatcher(board, shorten(title, 200), stream)
