"""What a user's function may give, and what it may not."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

from memagent_train.rewards.verdict import read_verdict


@pytest.mark.parametrize(
    ("value", "reward"),
    [
        (1, 1.0),
        (-0.5, -0.5),
        (True, 1.0),
        (False, 0.0),
        (Fraction(1, 4), 0.25),
        (Decimal("0.5"), 0.5),
        (np.float32(0.5), 0.5),
        (np.bool_(True), 1.0),
        (torch.tensor(0.5), 0.5),
    ],
)
def test_numbers_are_rewards(value: object, reward: float) -> None:
    verdict = read_verdict(value)
    assert (verdict.reward, verdict.scores, verdict.error) == (reward, {}, "")
    assert type(verdict.reward) is float


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "returned None"),
        ("1.0", "a str"),
        ([1.0], "a list"),
        (b"1", "a bytes"),
        (1j, "a complex"),
        (object, "a type"),
        (math.nan, "not finite"),
        (-math.inf, "not finite"),
        (1e308, "returned 1e\\+308, which is beyond 1e\\+09: scale rewards down"),
        (-1e10, "which is beyond"),
        ({"reward": 2e9}, "the reward is 2000000000.0, which is beyond"),
        (10**400, "not a single number"),
        (np.ones(3), "not a single number"),
        (torch.ones(3), "not a single number"),
        ({}, "without the key 'reward'"),
        ({"score": 1.0}, r"\['score'\]"),
        ({"reward": math.nan}, "the reward is nan, which is not finite"),
        ({"reward": "1"}, "the reward is '1', a str"),
        ({"reward": 1.0, "why": "it is right"}, "'why' is 'it is right', a str"),
        ("x" * 1000, r"x\.\.\."),
    ],
)
def test_anything_else_is_none_and_says_so(value: object, said: str) -> None:
    verdict = read_verdict(value)
    assert verdict.reward is None
    with pytest.raises(ValueError, match=said):
        raise ValueError(verdict.error)


def test_a_mapping_has_the_reward_and_figures_to_log() -> None:
    verdict = read_verdict(
        {"reward": True, "recall": 0.5, "none": None, "odd": math.nan, "big": 1e308, 3: 4}
    )
    assert verdict.reward == 1.0
    assert verdict.scores == {"recall": 0.5, "3": 4.0}


def test_figures_are_logged_where_the_function_gives_no_reward() -> None:
    verdict = read_verdict({"reward": None, "recall": 0.5})
    assert verdict.reward is None
    assert verdict.scores == {"recall": 0.5}
    assert "None as the reward" in verdict.error
