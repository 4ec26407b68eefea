"""Drawn on a terminal: steps scroll by, the bar goes away in the end."""

from __future__ import annotations

import io

from memagent.tasks.statistics import estimate
from memagent_train.cli.watch_live import LiveWatcher
from memagent_train.runs.progress import Board


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_steps_and_evaluations_leave_a_line() -> None:
    stream = Terminal()
    with LiveWatcher(Board(2), "training", stream) as watch:
        watch.stepped(1, {"reward": 0.125})
        watch.evaluated(1, {4096: estimate([[1.0, 0.0]])})
    shown = stream.getvalue()
    assert "reward 0.125" in shown
    assert "4K 0.500" in shown
