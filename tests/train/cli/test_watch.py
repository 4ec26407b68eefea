"""How a training is shown: lines without control codes, or a bar on a terminal."""

from __future__ import annotations

import io

import pytest

from memagent.cli.options import Display
from memagent_train.cli.going import Going
from memagent_train.cli.watch import watcher
from memagent_train.runs.progress import Board, PlainWatcher, SilentWatcher


def test_without_a_terminal_json_is_silent_and_plain_has_lines() -> None:
    going = Going(Display.PLAIN)
    assert isinstance(watcher(going, "x", Board(1)), PlainWatcher)
    assert going.begun
    assert type(watcher(Going(Display.JSON), "x", Board(1))) is SilentWatcher


def test_a_terminal_shows_a_bar_and_keeps_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdout", stream)
    watch = watcher(Going(Display.FULL), "training tiny", Board(4))
    with watch.screen:
        watch.begin_rolling(8)
        watch.note_rollout()
        watch.note_step(1, {"reward": 0.25})
        watch.note_evaluation(1, {"4096": {"mean": 0.5, "low": 0.1, "high": 0.9, "unscored": 0}})
    shown = stream.getvalue()
    assert "reward 0.250" in shown
    assert "4K 0.500" in shown
    assert "training tiny" in shown
    assert "step 1 of 4" in shown
