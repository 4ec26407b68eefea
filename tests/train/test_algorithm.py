import math

import pytest
from pydantic import ValidationError

from memagent_train.algorithm import AlgorithmSettings, BatchSettings, OptimizerSettings


def test_the_defaults_are_the_published_ones() -> None:
    optimizer = OptimizerSettings()
    assert (optimizer.learning_rate, optimizer.warmup_steps) == (1e-6, 20)
    assert (optimizer.weight_decay, optimizer.max_grad_norm) == (0.01, 1.0)
    algorithm = AlgorithmSettings()
    assert (algorithm.scale, algorithm.token_mean, algorithm.ratio) == ("none", "group", "rollout")
    assert (algorithm.epsilon_low, algorithm.epsilon_high, algorithm.beta) == (0.2, 0.28, 0.001)
    assert BatchSettings().group_size == 16


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        (AlgorithmSettings, {"epsilon_low": 1.0}),
        (AlgorithmSettings, {"epsilon_high": 0}),
        (AlgorithmSettings, {"beta": math.nan}),
        (AlgorithmSettings, {"ratio": "old"}),
        (AlgorithmSettings, {"epsilon": 0.2}),
        (BatchSettings, {"group_size": 1}),
        (BatchSettings, {"micro_batches": 0}),
        (OptimizerSettings, {"learning_rate": 0}),
        (OptimizerSettings, {"learning_rate": math.inf}),
        (OptimizerSettings, {"seed": -1}),
        (OptimizerSettings, {"steps": 0}),
    ],
)
def test_what_cannot_be_is_refused(settings: type, wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        settings(**wrong)


def test_a_penalty_cannot_start_below_no_tokens() -> None:
    with pytest.raises(
        ValidationError, match=r"overlong_window must be at most overlong_length \(100\), got 256"
    ):
        AlgorithmSettings(overlong_length=100)


def test_checkpoints_lie_between_steps() -> None:
    batch = BatchSettings(updates=2, iterations=3)
    assert batch.updates_per_step == 6
    assert [updates for updates in range(13) if batch.between_steps(updates)] == [0, 6, 12]
