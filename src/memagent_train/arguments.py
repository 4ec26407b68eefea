"""Converts memagent's settings to TRL's arguments."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments
from trl.trainer.grpo_config import GRPOConfig

from memagent.errors import ConfigError
from memagent_train.algorithm import AlgorithmSettings, BatchSettings, OptimizerSettings

# transformers 5.20 renamed it, but vLLM 0.32 doesn't allow that version yet.
NAMES = ("activation_checkpointing", "gradient_checkpointing")
CHECKPOINTING = next(name for name in NAMES if name in TrainingArguments.__dataclass_fields__)


def device_arguments(
    optimizer: OptimizerSettings, *, cpu: bool, gradient_checkpointing: bool
) -> dict[str, Any]:
    """Returns the arguments of every trainer that depend on the device and the version of transformers."""
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)  # the launcher's would override fp32
    supported = not cpu and torch.cuda.is_available() and torch.cuda.is_bf16_supported()
    wanted = optimizer.precision
    return {
        "bf16": supported if wanted == "auto" else wanted == "bf16",
        "use_cpu": cpu,
        "dataloader_pin_memory": not cpu and torch.cuda.is_available(),  # else torch warns
        CHECKPOINTING: gradient_checkpointing,
    }


def trl_arguments(
    out: Path,
    algorithm: AlgorithmSettings,
    batch: BatchSettings,
    optimizer: OptimizerSettings,
    *,
    save_every: int | None = None,
    gradient_checkpointing: bool = True,
    temperature: float = 1.0,
    report_to: Sequence[str] = (),
    cpu: bool = False,
) -> GRPOConfig:
    """Builds the arguments for `RolloutTrainer`.

    Args:
        out: folder for checkpoints.
        algorithm: `scale`, `token_mean`, overlong and step settings are handled by the trainer, not by TRL.
        batch: becomes TRL's accumulation steps, steps per generation, and iterations.
        optimizer: its steps are batches of rollouts, while TRL counts updates, so every checkpoint falls
            between two steps.
        save_every: steps between checkpoints; None writes none.
        gradient_checkpointing: whether activations are recomputed instead of stored.
        temperature: the rollouts' sampling temperature, at which log-probabilities are compared.
        report_to: names of transformers' integrations, such as "wandb".
        cpu: whether to ignore a GPU.
    """
    return GRPOConfig(
        output_dir=str(out),
        # Nominal: the trainer has its own loader and batches. It satisfies TRL's check for whole groups.
        per_device_train_batch_size=batch.group_size,
        num_generations=batch.group_size,
        gradient_accumulation_steps=batch.micro_batches,
        steps_per_generation=batch.micro_batches * batch.updates,
        num_iterations=batch.iterations,
        max_steps=optimizer.steps * batch.updates_per_step,
        loss_type="dapo",
        scale_rewards="none",
        epsilon=algorithm.epsilon_low,
        epsilon_high=algorithm.epsilon_high,
        beta=algorithm.beta,
        # The paper's plain k3 term. TRL's default multiplies it by the ratio, which changes its gradient.
        use_bias_correction_kl=False,
        temperature=temperature,
        disable_dropout=True,
        learning_rate=optimizer.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=optimizer.warmup_steps * batch.updates_per_step,
        weight_decay=optimizer.weight_decay,
        max_grad_norm=optimizer.max_grad_norm,
        **device_arguments(optimizer, cpu=cpu, gradient_checkpointing=gradient_checkpointing),
        seed=optimizer.seed,
        logging_steps=1,
        save_strategy="no" if save_every is None else "steps",
        save_steps=(save_every or 1) * batch.updates_per_step,
        save_total_limit=None,  # transformers would remove the last complete one before the next is marked
        report_to=list(report_to),
    )


def check_arguments(args: GRPOConfig, algorithm: AlgorithmSettings, batch: BatchSettings) -> None:
    """Rejects arguments made from other settings, or by hand with values that the trainer can't honour.

    Raises:
        ConfigError: the first that differs.
    """
    wanted = {
        # The other loss types are far off with padding rows and micro-batches of unequal size.
        "loss_type": "dapo",
        "num_generations": batch.group_size,
        "gradient_accumulation_steps": batch.micro_batches,
        "steps_per_generation": batch.micro_batches * batch.updates,
        "num_iterations": batch.iterations,
        "epsilon": algorithm.epsilon_low,
        "epsilon_high": algorithm.epsilon_high,
        "beta": algorithm.beta,
        "use_bias_correction_kl": False,
        "use_vllm": False,
    }
    for name, value in wanted.items():
        if getattr(args, name) != value:
            raise ConfigError(
                f"the trainer's argument {name} is {getattr(args, name)!r}, but its settings need {value!r}: make the "
                f"arguments with trl_arguments() from the same settings"
            )
