from pathlib import Path

import pytest

from memagent.errors import ConfigError
from memagent_train.algorithm import AlgorithmSettings, BatchSettings, OptimizerSettings
from memagent_train.arguments import check_arguments, trl_arguments

BATCH = BatchSettings(groups=3, group_size=5, micro_batches=4, updates=2, iterations=3)


def test_steps_become_updates(tmp_path: Path) -> None:
    args = trl_arguments(
        tmp_path,
        AlgorithmSettings(),
        BATCH,
        OptimizerSettings(steps=10, warmup_steps=2),
        save_every=5,
        cpu=True,
    )
    assert (args.max_steps, args.warmup_steps, args.save_steps) == (60, 12, 30)
    assert BATCH.between_steps(int(args.save_steps))
    assert args.gradient_accumulation_steps == 4
    assert args.steps_per_generation == 8
    assert args.num_iterations == 3


def test_the_rate_is_constant_after_the_warm_up(tmp_path: Path) -> None:
    args = trl_arguments(tmp_path, AlgorithmSettings(), BATCH, OptimizerSettings(), cpu=True)
    assert args.lr_scheduler_type == "constant_with_warmup"
    assert (args.learning_rate, args.weight_decay, args.max_grad_norm) == (1e-6, 0.01, 1.0)


@pytest.mark.parametrize(("precision", "bf16"), [("auto", False), ("fp32", False), ("bf16", True)])
@pytest.mark.parametrize("launched", ["no", "bf16", "fp16"])
def test_precision_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launched: str, precision: str, bf16: bool
) -> None:
    """Whatever the file of `accelerate launch` says."""
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launched)
    optimizer = OptimizerSettings.model_validate({"precision": precision})
    args = trl_arguments(tmp_path, AlgorithmSettings(), BATCH, optimizer, cpu=True)
    assert args.bf16 is bf16
    assert args.mixed_precision == ("bf16" if bf16 else "no")


def test_nothing_is_saved_and_reported_unasked(tmp_path: Path) -> None:
    args = trl_arguments(tmp_path, AlgorithmSettings(), BATCH, OptimizerSettings(), cpu=True)
    assert args.save_strategy == "no"
    assert args.report_to == []


@pytest.mark.parametrize(
    ("name", "value"),
    [("loss_type", "grpo"), ("use_bias_correction_kl", True), ("num_iterations", 1), ("beta", 0.5)],
)
def test_arguments_from_elsewhere_are_refused(tmp_path: Path, name: str, value: object) -> None:
    args = trl_arguments(tmp_path, AlgorithmSettings(), BATCH, OptimizerSettings(), cpu=True)
    check_arguments(args, AlgorithmSettings(), BATCH)
    setattr(args, name, value)
    with pytest.raises(ConfigError, match=rf"{name} is {value!r}.*trl_arguments"):
        check_arguments(args, AlgorithmSettings(), BATCH)
