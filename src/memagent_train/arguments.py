"""TRL's arguments from our settings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from trl.trainer.grpo_config import GRPOConfig

from memagent.errors import ConfigError
from memagent_train.algorithm import AlgorithmSettings, BatchSettings, OptimizerSettings
from memagent_train.device import in_bf16


def trl_arguments(
    out: Path,
    algorithm: AlgorithmSettings,
    batch: BatchSettings,
    optimizer: OptimizerSettings,
    *,
    save_every: int | None = None,
    keep: int | None = None,
    gradient_checkpointing: bool = True,
    temperature: float = 1.0,
    report_to: Sequence[str] = (),
    cpu: bool = False,
) -> GRPOConfig:
    """What `RolloutTrainer` is to be given.

    Args:
        out: folder for checkpoints.
        algorithm: `scale`, `token_mean`, overlong and step settings are the trainer's own and not among TRL's.
        batch: becomes TRL's accumulation steps, steps a generation, and iterations.
        optimizer: its steps are batches of rollouts; TRL counts updates, so both ends of every checkpoint fall
            between two steps.
        save_every: steps from one checkpoint to the next; None: none is written.
        keep: checkpoints that stay; None: all.
        gradient_checkpointing: activations are computed twice and not kept.
        temperature: that at which rollouts are sampled: log-probabilities are compared at it.
        report_to: names of transformers' integrations, such as "wandb".
        cpu: whether a GPU is left alone.
    """
    return GRPOConfig(
        output_dir=str(out),
        # Nominal: the trainer's loader and batches are its own. It makes TRL's check of whole groups hold.
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
        # The plain k3 term of the paper. TRL's default multiplies it by the ratio, which changes its gradient.
        use_bias_correction_kl=False,
        temperature=temperature,
        disable_dropout=True,
        learning_rate=optimizer.learning_rate,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=optimizer.warmup_steps * batch.updates_per_step,
        weight_decay=optimizer.weight_decay,
        max_grad_norm=optimizer.max_grad_norm,
        bf16=in_bf16(optimizer, cpu=cpu),
        use_cpu=cpu,
        dataloader_pin_memory=not cpu and torch.cuda.is_available(),  # else torch warns
        activation_checkpointing=gradient_checkpointing,
        seed=optimizer.seed,
        logging_steps=1,
        save_strategy="no" if save_every is None else "steps",
        save_steps=(save_every or 1) * batch.updates_per_step,
        save_total_limit=keep,
        report_to=list(report_to),
    )


def check_arguments(args: GRPOConfig, algorithm: AlgorithmSettings, batch: BatchSettings) -> None:
    """Refuses arguments that were made from other settings, or by hand with what this trainer cannot keep.

    Raises:
        ConfigError: the first that differs.
    """
    wanted = {
        # The others are wrong by a wide margin under padding rows and micro-batches of unlike size.
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
                f"the trainer's argument {name} is {getattr(args, name)!r}, its settings need {value!r}: make the "
                f"arguments with trl_arguments() from the same settings"
            )
