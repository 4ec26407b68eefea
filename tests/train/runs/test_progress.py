"""What is known of a training: the reward, how far it is, and how long it will last."""

from __future__ import annotations

from typing import Any

import pytest
from tests.train.handmade import rollout

from memagent_train.figures import facts_of
from memagent_train.rollouts import Status
from memagent_train.runs.evaluation import as_figures, measure
from memagent_train.runs.progress import Board, PlainWatcher, SilentWatcher, line_of


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def measured(*rewards: float | None, overlong: bool = False) -> dict[str, Any]:
    """Figures of an evaluation; rollouts without a reward failed."""
    ended = [
        rollout("a", n, (), reward, overlong=overlong)
        if reward is not None
        else rollout("a", n, (), None, status=Status.FAILED, error="Broken: no", overlong=overlong)
        for n, reward in enumerate(rewards)
    ]
    return as_figures(measure(list(map(facts_of, ended))))


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
    shares = {"rollouts/failed": 0.125, "rollouts/unscored": 0.0, "rollouts/overlong": 1.0}
    assert line_of({"reward": 0.5} | shares) == "reward 0.500  12.5% failed  100% overlong"


def test_an_evaluation_is_a_line_with_intervals() -> None:
    watch = SilentWatcher(Board(3))
    watch.note_evaluation(3, {"0": measured(1.0), "8192": measured(1.0, 0.0)})
    assert watch.board.said.startswith(
        "evaluated after step 3:  natural 1.000 [0.207, 1.000]  8K 0.500 ["
    )


def test_an_evaluation_says_what_has_no_reward_and_what_a_limit_ended() -> None:
    watch = SilentWatcher(Board(3))
    watch.note_evaluation(0, {"0": measured(1.0, None, overlong=True), "8192": measured(None)})
    assert watch.board.said == (
        "evaluated after step 0:  natural 0.500 [0.095, 0.905], 1 without a reward, 100% overlong  "
        "8K 1 of 1 without a reward: 'Broken: no'"
    )


def test_plain_lines_have_no_control_codes(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    watch = PlainWatcher(Board(steps=12, clock=clock))
    clock.now = 10.0
    watch.note_step(1, {"reward": 0.25})
    watch.note_evaluation(1, {"8192": measured(1.0, 0.0, 1.0, 1.0)})
    first, second = capsys.readouterr().out.splitlines()
    assert first == " 1/12  reward 0.250  1 min 50 s left"
    assert second.startswith("evaluated after step 1:  8K 0.750 [0.3")
