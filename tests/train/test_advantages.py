import math
from dataclasses import replace
from typing import Any

import pytest
from tests.train.handmade import rollout

from memagent_train.advantages import TrainingRow, check_groups, check_rollout, compare, merge_rows
from memagent_train.algorithm import AlgorithmSettings
from memagent_train.errors import TrainingError
from memagent_train.rollouts import Rollout, Row, Span, Status

ROW = Row((2, 3), (4, 5, 6), (1, 1, 1), (-1.0, -1.0, -1.0))
SILENT = Row((2, 3), (4,), (0,), (0.0,))
PLAIN = AlgorithmSettings()


def group(
    *rewards: float | None, rows: tuple[Row, ...] = (ROW, ROW), **fields: Any
) -> list[Rollout]:
    return [rollout("g", n, rows, reward, **fields) for n, reward in enumerate(rewards)]


class TestCompare:
    def test_every_row_gets_the_advantage_of_its_rollout(self) -> None:
        compared = compare(group(1.0, 0.0), PLAIN)
        assert compared.advantages == (0.5, -0.5)
        assert [row.advantage for row in compared.rows] == [0.5, 0.5, -0.5, -0.5]
        assert compared.informative

    def test_rollouts_without_a_reward_have_no_rows_and_no_part_in_the_mean(self) -> None:
        rollouts = group(1.0, None, 0.0)
        rollouts[1] = replace(rollouts[1], status=Status.FAILED)
        compared = compare(rollouts, PLAIN)
        assert compared.advantages == (0.5, None, -0.5)
        assert len(compared.rows) == 4

    def test_rows_in_which_nothing_counts_are_left_out(self) -> None:
        compared = compare(group(1.0, 0.0, rows=(ROW, SILENT)), PLAIN)
        assert [row.row for row in compared.rows] == [ROW, ROW]
        assert not compare(group(1.0, 0.0, rows=(SILENT,)), PLAIN).informative
        assert not compare(group(1.0, 0.0, rows=()), PLAIN).informative

    @pytest.mark.parametrize("rewards", [(1.0, 1.0), (None, None), (1.0, None)])
    def test_a_group_teaches_nothing_without_unlike_rewards(
        self, rewards: tuple[float | None]
    ) -> None:
        assert not compare(group(*rewards), PLAIN).informative

    def test_overlong_rollouts_are_masked_whole_and_stay_in_the_mean(self) -> None:
        rollouts = group(1.0, 0.0, 0.0)
        rollouts[2] = replace(rollouts[2], overlong=True)
        assert len(compare(rollouts, PLAIN).rows) == 6
        masked = compare(rollouts, AlgorithmSettings(overlong_mask=True))
        assert masked.advantages == (pytest.approx(2 / 3), pytest.approx(-1 / 3), None)
        assert len(masked.rows) == 4

    def test_tokens_weigh_by_the_kind_of_their_call(self) -> None:
        spans = (Span(0, 1, "act"), Span(1, 2, "summary", rejected=True), Span(2, 3, "summary"))
        rollouts = group(1.0, 0.0, rows=(replace(ROW, spans=spans), ROW))
        for settings, weights in (
            ({}, (1, 1, 1)),
            ({"weights": {"summary": 0.0}}, (1, 0, 0)),
            ({"weights": {"summary": 0.5, "act": 2.0}}, (2, 0.5, 0.5)),
            ({"rejected": "leave_out"}, (1, 0, 1)),
            ({"rejected": "leave_out", "weights": {"summary": 3.0}}, (1, 0, 3)),
        ):
            compared = compare(rollouts, AlgorithmSettings.model_validate(settings))
            found = [row.row.loss_mask for row in compared.rows]
            assert found == [weights, (1, 1, 1)] * 2

    def test_a_conversation_of_frozen_tokens_alone_has_no_row(self) -> None:
        frozen = AlgorithmSettings(weights={"summary": 0.0})
        rows = (replace(ROW, spans=(Span(0, 3, "summary"),)),)
        compared = compare(group(1.0, 0.0, rows=rows), frozen)
        assert compared.rows == ()
        assert not compared.informative
        assert compared.rollouts[0].rows == rows  # the log shows what was sampled

    def test_length_costs_reward(self) -> None:
        # Three sampled tokens in the longest conversation, L_max 4, L_cache 2: (2 - 3) / 2 = -0.5
        long, short = group(1.0, rows=(SILENT, ROW)), group(1.0, rows=(SILENT,))
        penalised = compare(
            [*long, *short], AlgorithmSettings(overlong_length=4, overlong_window=2)
        )
        assert penalised.advantages == pytest.approx((-0.25, 0.25))
        assert penalised.informative

    def test_step_rewards_are_added_to_their_rows_only(self) -> None:
        rollouts = [
            rollout("g", 0, (ROW, ROW), 1.0, step_rewards=(1.0, None)),
            rollout("g", 1, (ROW, ROW), 1.0, step_rewards=(0.0, None)),
        ]
        assert not compare(rollouts, PLAIN).informative
        stepped = compare(rollouts, AlgorithmSettings(step_weight=0.4))
        # 0.4 * (1 - 0.5) and 0.4 * (0 - 0.5)
        assert [row.advantage for row in stepped.rows] == pytest.approx([0.2, 0.0, -0.2, 0.0])
        assert stepped.advantages == (0.0, 0.0)
        assert stepped.informative

    def test_step_rewards_of_a_rollout_without_a_reward_do_not_count(self) -> None:
        rollouts = [
            rollout("g", 0, (ROW,), 1.0, step_rewards=(1.0,)),
            rollout("g", 1, (ROW,), None, step_rewards=(0.0,)),
        ]
        assert not compare(rollouts, AlgorithmSettings(step_weight=1.0)).informative


class TestChecked:
    @pytest.mark.parametrize("reward", [None, math.nan, math.inf])
    def test_a_reward_that_is_none_leaves_the_rollout_unscored(self, reward: float | None) -> None:
        found = check_rollout(rollout("g", 0, (ROW,), reward, status=Status.SCORED))
        assert (found.status, found.reward) == (Status.UNSCORED, None)
        assert repr(reward) in found.error

    @pytest.mark.parametrize(
        ("row", "said"),
        [
            (replace(ROW, logprobs=(-1.0, math.nan, -1.0)), "log-probability"),
            (replace(ROW, logprobs=(-1.0, -math.inf, -1.0)), "log-probability"),
            (replace(ROW, logprobs=(-1.0,)), "3 ids, 3 mask values and 1 log-probabilities"),
            (replace(ROW, loss_mask=(1,)), "3 ids, 1 mask values"),
            (replace(ROW, prompt_ids=()), "no prompt"),
        ],
    )
    def test_rows_that_cannot_be_trained_on_fail_it(self, row: Row, said: str) -> None:
        found = check_rollout(rollout("g", 0, (ROW, row), 1.0))
        assert (found.status, found.reward) == (Status.FAILED, None)
        assert said in found.error

    @pytest.mark.parametrize("steps", [(1.0,), (1.0, math.nan), (1.0, None, None)])
    def test_so_do_step_rewards_that_fit_no_row(self, steps: tuple[float | None, ...]) -> None:
        found = check_rollout(rollout("g", 0, (ROW, ROW), 1.0, step_rewards=steps))
        assert found.status is Status.FAILED

    def test_what_is_in_order_stays_as_it_is(self) -> None:
        good = rollout("g", 0, (ROW, SILENT), 1.0, step_rewards=(None, 0.5))
        assert check_rollout(good) is good
        failed = rollout("g", 0, (), None, status=Status.FAILED, error="broken")
        assert check_rollout(failed) is failed

    def test_only_a_scored_rollout_has_a_reward(self) -> None:
        unscored = rollout("g", 0, (ROW,), 9.0, status=Status.UNSCORED)
        assert check_rollout(unscored) == replace(unscored, reward=None)


class TestCheckGroups:
    def test_cuts(self) -> None:
        rollouts = [rollout(name, n, (), 1.0) for name in "ab" for n in range(2)]
        assert check_groups(rollouts, 2, 2) == [rollouts[:2], rollouts[2:]]

    def test_a_rollout_that_is_missing(self) -> None:
        with pytest.raises(TrainingError, match=r"3 rollouts .* 2 for each of 2 samples.* FAILED"):
            check_groups(group(1.0, 1.0, 1.0), 2, 2)

    @pytest.mark.parametrize("names", ["abab", "aaaa"])
    def test_groups_that_are_not_side_by_side(self, names: str) -> None:
        with pytest.raises(TrainingError, match="adjacent"):
            check_groups([rollout(name, n, (), 1.0) for n, name in enumerate(names)], 2, 2)


class TestMergeRows:
    def test_equal_rows_of_a_group_become_one_with_their_mean_advantage(self) -> None:
        other = replace(ROW, response_ids=(4, 5, 7))
        rows = [TrainingRow(ROW, 0.5), TrainingRow(other, 0.5), TrainingRow(ROW, -0.1)]
        merged, groups = merge_rows([*rows, TrainingRow(ROW, 0.3)], [0, 0, 0, 1])
        assert groups == [0, 0, 1]
        assert [row.times for row in merged] == [2, 1, 1]
        assert [row.advantage for row in merged] == pytest.approx([0.2, 0.5, 0.3])

    def test_what_all_rollouts_did_has_no_advantage(self) -> None:
        compared = compare(group(0.1, 0.7, 0.2, 0.4, 0.3, rows=(ROW,)), PLAIN)
        assert sum(row.advantage for row in compared.rows) != 0  # but by a rounding
        merged, _ = merge_rows(compared.rows, [0] * 5)
        assert [(row.advantage, row.times) for row in merged] == [(0.0, 5)]

    def test_nothing_is_merged_that_counts_otherwise(self) -> None:
        rows = [TrainingRow(ROW, 1.0), TrainingRow(replace(ROW, loss_mask=(1, 1, 0)), 1.0)]
        assert merge_rows(rows, [0, 0]) == (rows, [0, 0])
