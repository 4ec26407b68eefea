import math
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from tests.train.handmade import rollout

from memagent_train.advantages import compare
from memagent_train.algorithm import AlgorithmSettings
from memagent_train.errors import RewardFailed, RolloutsFailed
from memagent_train.figures import (
    GroupFacts,
    RolloutFacts,
    facts,
    facts_of,
    figures,
    raise_if_nothing_scored,
    warn_of_failures,
)
from memagent_train.rollout.meter import Utilization
from memagent_train.rollouts import Row, Span, Status
from memagent_train.runs.rollout_log import SCHEMA

ROW = Row((2, 3), (4, 5, 6), (1, 0, 1), (-1.0, 0.0, -1.0))


def two_groups() -> list[GroupFacts]:
    first = [
        rollout(
            "a", 0, (ROW, ROW), 1.0, scores={"precision": 0.5, "tools/failed": 0.25}, seconds=2.0
        ),
        rollout("a", 1, (ROW,), 0.0, overlong=True),
    ]
    second = [
        rollout("b", 0, (ROW,), None, error="no verdict"),
        rollout("b", 1, (), None, status=Status.FAILED, error="broken"),
    ]
    settings = AlgorithmSettings()
    return [
        facts(compare(first, settings), kept=True),
        facts(compare(second, settings), kept=False),
    ]


def told(groups: list[GroupFacts]) -> list[RolloutFacts]:
    return [one for group in groups for one in group.rollouts]


def test_figures() -> None:
    assert figures(two_groups()) == {
        "reward": 0.5,
        "reward_std": 0.5,
        "scores/precision": 0.5,
        "tools/failed": 0.25,
        "groups/rolled_out": 2.0,
        "groups/trained": 1.0,
        "groups/dropped": 0.5,
        "groups/without_signal": 0.5,
        "rollouts/failed": 0.25,
        "rollouts/unscored": 0.25,
        "rollouts/overlong": 0.25,
        "rollouts/conversations": 1.0,
        "rollouts/seconds": 0.5,
        "tokens/rolled_out": 20.0,
        "tokens/sampled": 8.0,
    }


@pytest.mark.parametrize(("failed", "warned"), [(0, False), (1, False), (2, True), (20, True)])
def test_failures_are_warned_of(
    failed: int, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rollouts = [
        rollout("a", n, (), None, status=Status.FAILED, error="bad reply")
        if n < failed
        else rollout("a", n, (ROW,), 1.0)
        for n in range(20)
    ]
    warn_of_failures(3, [facts(compare(rollouts, AlgorithmSettings()), kept=True)])
    assert (f"step 3: {failed} of 20 rollouts failed" in caplog.text) is warned
    assert ("'bad reply'" in caplog.text) is warned


def test_tokens_are_counted_by_what_they_were_sampled_for() -> None:
    spans = (Span(0, 1, "act"), Span(2, 3, "summary"))
    rejected = (Span(0, 3, "summary", rejected=True),)
    rows = (replace(ROW, spans=spans), replace(ROW, spans=rejected), ROW)
    group = compare(
        [rollout("a", 0, rows, 1.0), rollout("a", 1, rows[:1], 0.0)], AlgorithmSettings()
    )
    counted = figures([facts(group, kept=True)])
    kinds = ("act", "summary", "rejected", "shown")
    assert [counted[f"tokens/{kind}"] for kind in kinds] == [2.0, 2.0, 3.0, 2.0]


def test_tokens_of_no_weight_were_sampled_all_the_same() -> None:
    spans = (Span(0, 1, "act"), Span(2, 3, "summary", rejected=True))
    rollouts = [rollout("a", n, (replace(ROW, spans=spans),), float(n)) for n in range(2)]
    weighed = AlgorithmSettings(weights={"act": 0.5, "summary": 0.0}, rejected="leave_out")
    for settings in (AlgorithmSettings(), weighed):
        group = compare(rollouts, settings)
        assert figures([facts(group, kept=True)])["tokens/sampled"] == 4.0


def test_the_mean_of_no_rewards_is_no_number() -> None:
    assert math.isnan(figures(two_groups()[1:])["reward"])


def test_one_reward_is_enough_to_go_on() -> None:
    raise_if_nothing_scored(told(two_groups()))


def test_a_batch_that_came_to_an_end_without_a_reward_is_the_rewards_fault() -> None:
    with pytest.raises(
        RewardFailed, match=r"none of the 2 rollouts .* 'no verdict'.* reward function"
    ):
        raise_if_nothing_scored(told(two_groups()[1:]))


def test_a_batch_that_came_to_no_end_is_not() -> None:
    failed = [
        rollout("b", n, (), None, status=Status.FAILED, error=f"broken {n}") for n in range(2)
    ]
    with pytest.raises(RolloutsFailed, match=r"all 2 rollouts .* 'broken 0'.* agent"):
        raise_if_nothing_scored(list(map(facts_of, failed)))


def test_the_reference_explains_what_is_logged() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
    explained = set(re.findall(r"`([\w/]+)`", page.read_text(encoding="utf-8")))
    made = {name for name in figures(two_groups()) if not name.startswith("scores/")}
    engine = {f"engine/{field.name}" for field in fields(Utilization)}
    assert not (made | engine | set(SCHEMA.names)) - explained
