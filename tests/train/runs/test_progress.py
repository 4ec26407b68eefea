"""What is known of a training: the reward, how far it is, and how long it will last."""

from __future__ import annotations

import pytest

from memagent.tasks.statistics import estimate
from memagent_train.runs.progress import (
    Board,
    PlainWatcher,
    SilentWatcher,
    evaluation_line,
    line_of,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_time_left_is_that_of_this_sessions_steps() -> None:
    clock = Clock()
    board = Board(steps=10, done=4, clock=clock)
    assert board.left is None
    assert board.fraction == 0.4
    clock.now = 20.0
    SilentWatcher(board).note_step(6, {"reward": 0.5})
    assert board.left == 40.0


def test_rollouts_of_the_step_are_counted() -> None:
    board = Board(steps=2)
    watch = SilentWatcher(board)
    watch.begin_rolling(8)
    watch.note_rollout()
    assert "rollouts 1/8" in board.facts()
    watch.note_step(1, {})
    assert not any("rollouts" in fact for fact in board.facts())


def test_a_line_has_the_reward_first() -> None:
    line = line_of({"loss": 0.1234567, "reward": 0.5, "other": 1})
    assert line.startswith("reward 0.500")
    assert "loss 0.123" in line
    assert "other" not in line
    assert line_of({"reward": None}).startswith("reward   -")


def test_shares_are_shown_where_they_are_not_nothing() -> None:
    line = line_of({"reward": 0.5, "rollouts/failed": 0.125, "rollouts/unscored": 0.0})
    assert line == "reward 0.500  failed 12.5%"


def test_an_evaluation_is_a_line_with_intervals() -> None:
    found = {0: estimate([[1.0]]), 8192: estimate([[1.0, 0.0]])}
    assert evaluation_line(3, found).startswith(
        "evaluated after step 3:  natural 1.000 [0.207, 1.000]  8K 0.500 ["
    )


def test_plain_lines_have_no_control_codes(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    watch = PlainWatcher(Board(steps=12, clock=clock))
    clock.now = 10.0
    watch.note_step(1, {"reward": 0.25})
    watch.note_evaluation(1, {8192: estimate([[1.0, 0.0, 1.0, 1.0]])})
    first, second = capsys.readouterr().out.splitlines()
    assert first == " 1/12  reward 0.250  1 min 50 s left"
    assert second.startswith("evaluated after step 1:  8K 0.750 [0.3")
