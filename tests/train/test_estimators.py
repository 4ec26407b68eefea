"""Every estimator against numbers worked out by hand; the arithmetic stands beside them."""

# ruff: noqa: N806  (names of tensors end in their dimensions)

import math

import pytest
import torch
from torch import Tensor

from memagent_train import estimators

NAN = math.nan


def close(found: Tensor, wanted: object, within: float = 1e-6) -> None:
    torch.testing.assert_close(
        found.double(), torch.tensor(wanted, dtype=torch.float64), rtol=0, atol=within
    )


class TestAdvantages:
    def test_are_rewards_less_the_mean_of_their_group(self) -> None:
        rewards_BG = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.5, 1.0, 0.0, 0.5]])
        # means 1/4 and 2/4
        close(
            estimators.centred_advantages(rewards_BG),
            [[0.75, -0.25, -0.25, -0.25], [0.0, 0.5, -0.5, 0.0]],
        )

    def test_are_divided_by_the_unbiased_standard_deviation(self) -> None:
        rewards_BG = torch.tensor([[1.0, 0.0, 0.0, 0.0]])
        # squares 9/16 + 3 * 1/16 = 12/16, divided by n - 1 = 3: 1/4, root 1/2; 0.75 / 0.5 and -0.25 / 0.5
        close(
            estimators.standardised_advantages(rewards_BG), [[1.5, -0.5, -0.5, -0.5]], within=1e-5
        )

    def test_leave_a_rollout_without_a_reward_out_of_the_mean(self) -> None:
        rewards_BG = torch.tensor([[1.0, NAN, 0.0, NAN]])
        # mean (1 + 0) / 2; with the NaN as 0 it would be 1/4
        close(estimators.centred_advantages(rewards_BG), [[0.5, 0.0, -0.5, 0.0]])
        # squares 1/4 + 1/4, divided by 2 - 1: root of 1/2 = 0.70710678; 0.5 / 0.70710678
        close(
            estimators.standardised_advantages(rewards_BG),
            [[0.70710678, 0.0, -0.70710678, 0.0]],
            within=2e-6,
        )

    @pytest.mark.parametrize("scale", ["none", "std"])
    @pytest.mark.parametrize(
        "rewards",
        [[1.0], [NAN], [NAN, 0.7, NAN], [NAN, NAN], [0.1, 0.1, 0.1], [0.3, NAN, 0.3]],
        ids=str,
    )
    def test_are_nothing_where_there_is_nothing_to_compare(
        self, scale: str, rewards: list[float]
    ) -> None:
        found = estimators.ADVANTAGES[scale](torch.tensor([rewards]))
        assert found.tolist() == [[0.0] * len(rewards)]  # exactly: a rounding would be a gradient

    def test_keep_what_differs_by_little(self) -> None:
        rewards_BG = torch.tensor([[0.5, 0.5 + 2**-20]], dtype=torch.float64)
        assert bool(estimators.keep_groups(rewards_BG))
        assert estimators.centred_advantages(rewards_BG)[0, 1] == 2**-21


def test_groups_are_kept_that_have_two_unlike_rewards() -> None:
    rewards_BG = torch.tensor(
        [
            [1.0, 0.0, NAN],
            [1.0, 1.0, 1.0],
            [NAN, NAN, NAN],
            [NAN, 1.0, NAN],
            [0.0, 0.0, NAN],
            [-1.0, 0, 0],
        ]
    )
    kept = [True, False, False, False, False, True]
    assert estimators.keep_groups(rewards_BG).tolist() == kept


def test_overlong_penalty_falls_in_a_line() -> None:
    # L_max 100, L_cache 20: 0 up to 80; (80 - 85) / 20 = -0.25; -1 from 100 on
    lengths = torch.tensor([0, 80, 85, 90, 100, 500])
    close(estimators.overlong_penalty(lengths, 100, 20), [0.0, 0.0, -0.25, -0.5, -1.0, -1.0])


class TestStepAdvantages:
    def test_compare_all_rewarded_conversations_of_a_group(self) -> None:
        rewards_GC = torch.tensor([[1.0, 0.0, NAN], [1.0, NAN, NAN]])
        # mean of three: 2/3
        close(estimators.step_advantages(rewards_GC), [[1 / 3, -2 / 3, 0.0], [1 / 3, 0.0, 0.0]])

    def test_are_standardised_where_the_scale_says_so(self) -> None:
        rewards_GC = torch.tensor([[1.0, 0.0, NAN], [1.0, NAN, NAN]])
        # squares 1/9 + 4/9 + 1/9 = 6/9, divided by 2: 1/3, root 0.57735; 1/3 / 0.57735 = 0.57735
        found = estimators.step_advantages(rewards_GC, "std")
        close(found, [[0.57735, -1.15470, 0.0], [0.57735, 0.0, 0.0]], within=1e-5)

    def test_are_nothing_without_rewards(self) -> None:
        assert estimators.step_advantages(torch.full((2, 3), NAN)).tolist() == [[0.0] * 3] * 2
        assert estimators.step_advantages(torch.empty(2, 0)).shape == (2, 0)


def test_row_weights_make_every_group_count_the_same() -> None:
    group_N = torch.tensor([0, 0, 1])
    weights_N = estimators.row_weights(torch.tensor([2, 1, 1]), group_N)
    # 4 tokens, 2 groups: 4 / (2 * 3) for the first group's rows, 4 / (2 * 1) for the second's
    close(weights_N, [2 / 3, 2 / 3, 2.0])
    # 2 * 2/3 + 1 * 2/3 + 1 * 2: the weighted tokens are still 4
    close((weights_N * torch.tensor([2, 1, 1])).sum(), 4.0)
    assert estimators.row_weights(torch.tensor([0, 0]), torch.tensor([0, 1])).tolist() == [0, 0]
    none = torch.tensor([], dtype=torch.long)
    assert estimators.row_weights(none, none).tolist() == []


def test_importance_weights_are_cut_off_above() -> None:
    trained_NT = torch.tensor([[-1.0, -2.0, -1.0]])
    sampled_NT = torch.tensor([[-1.0, -1.0, -3.0]])
    # e^0, e^-1, and e^2 = 7.39 cut off at 2
    close(estimators.truncated_weights(trained_NT, sampled_NT, 2.0), [[1.0, 0.36787944, 2.0]])
    far_NT = torch.tensor([[-1.0, -1000.0, -1.0]])
    close(estimators.truncated_weights(far_NT, far_NT.roll(1), 2.0), [[1.0, 0.0, 2.0]])
