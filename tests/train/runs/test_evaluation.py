"""Held-out samples are asked under names and seeds of their own, and summed up with an interval."""

from __future__ import annotations

import pytest

from memagent.tokens import ByteBound
from memagent_train.data.open import Data, open_data
from memagent_train.data.settings import DataSettings, TaskSettings
from memagent_train.runs.evaluation import questions, summary


@pytest.fixture(scope="module")
def data() -> Data:
    source = TaskSettings(kind="task", use="memagent_train.smoke.task:Relay", count=9)
    return open_data(DataSettings(source=(source,)), counter=ByteBound())


def test_names_are_those_of_places(data: Data) -> None:
    asked = questions(data, range(1, 5, 2), length=8192, step=3, seed=7)
    assert [one.rollout_id for one in asked] == ["eval-00003-8192-0001", "eval-00003-8192-0003"]
    assert [one.sample for one in asked] == [data.sample(1), data.sample(3)]


def test_two_steps_draw_with_equal_seeds_and_two_samples_with_others(data: Data) -> None:
    early, late = (questions(data, range(2), length=0, step=step, seed=7) for step in (0, 9))
    assert [one.seed for one in early] == [one.seed for one in late]
    assert early[0].seed != early[1].seed
    other = questions(data, range(1), length=0, step=0, seed=8)
    assert other[0].seed != early[0].seed


def test_tasks_weigh_the_same_and_the_unscored_count_as_nothing() -> None:
    found = summary([("a", 1.0), ("a", 1.0), ("a", None), ("b", 0.0)])
    assert found.mean == pytest.approx(1 / 3)
    assert (found.n, found.unscored) == (4, 1)
    assert found.low < found.mean < found.high


def test_rewards_beyond_one_have_an_interval_too() -> None:
    found = summary([("a", -1.0), ("a", 2.0), ("a", 5.0), ("a", None)])
    assert found.mean == pytest.approx(1.5)
    assert found.scored_mean == 2.0
    assert found.low < 1.5 < found.high
    assert (found.n, found.unscored) == (4, 1)


def test_rewards_of_minus_one_and_one_have_the_interval_of_a_share() -> None:
    """Also if all are equal, where nothing can be redrawn."""
    share, found = summary([("a", 0.0)] * 8), summary([("a", -1.0)] * 8)
    assert (found.mean, found.low, found.high) == (-1.0, -1.0, 2 * share.high - 1)
    share, found = (summary([("a", 1.0)] * 5 + [("a", wrong)] * 3) for wrong in (0.0, -1.0))
    assert (found.low, found.high) == pytest.approx((2 * share.low - 1, 2 * share.high - 1))
