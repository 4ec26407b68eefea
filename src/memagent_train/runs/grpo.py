"""`train`: runs or resumes a training by reinforcement learning."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memagent.errors import ConfigError
from memagent_train.config.train import FREE, TrainConfig, dump_config
from memagent_train.rollout.settings import OWN_WEIGHTS
from memagent_train.runs import metrics
from memagent_train.runs.faults import translate_faults
from memagent_train.runs.folder import RunFolder
from memagent_train.runs.processes import open_shared, this_process
from memagent_train.runs.progress import SIGNAL, Board, SilentWatcher
from memagent_train.runs.randomness import own_randomness
from memagent_train.runs.reports import report_targets
from memagent_train.runs.signals import stop_on_signals


@dataclass(frozen=True)
class TrainingResult:
    """What a training achieved."""

    out: Path
    steps: int
    evaluations: dict[int, dict[str, Any]]
    """Evaluations by step, then by length: mean, ends of the 95% interval, samples, share of overlong ones."""
    reward: float | None
    """Mean reward of the last step's rollouts."""
    without_signal: int
    """Steps in which no group had a signal, so nothing was learned from rewards."""


def train(
    config: TrainConfig,
    out: Path,
    *,
    watch: Callable[[Board], SilentWatcher] = SilentWatcher,
) -> TrainingResult:
    """Trains, resuming from the newest complete checkpoint in `out` if there is one.

    A signal ends it immediately with `Signalled`; the same call then resumes from the newest complete checkpoint.

    Args:
        config: the settings.
        out: the folder of the run.
        watch: creates the progress display once everything is ready.

    Raises:
        ConfigError: a setting is wrong; nothing was started.
        RunBusy: another process trains in the folder.
        CheckpointMismatch: the folder has a run with other settings.
        DiskFull: something can't be written; the newest checkpoint is intact.
        OutOfMemory: a batch doesn't fit.
        TrainingError: see `memagent_train.errors`.
    """
    process = this_process(config.resources)
    _check_sharding(config)
    if config.evaluation.every and not config.evaluation.columns:
        raise ConfigError(
            f"evaluation.every = {config.evaluation.every!r} has nothing to evaluate: give evaluation.lengths or "
            f"evaluation.as_they_are = true, or leave it out"
        )
    run = open_shared(out, dump_config(config), FREE, process, config.resources, TrainConfig)
    reporting = report_targets(config.logging)
    randomness = own_randomness()
    with reporting as reports, randomness, stop_on_signals(), translate_faults(out), run as folder:
        from memagent_train.runs.training import Training

        training = Training(config, folder, process=process, reports=reports)
        try:
            training.watch = watch(training.watch.board)
            with training.watch.screen:
                training.run()
        finally:
            training.close()
        return _outcome(folder, config)


def _check_sharding(config: TrainConfig) -> None:
    sharding, engine = config.resources.sharding, config.rollout.engine
    if sharding in ("zero2", "zero3") and find_spec("deepspeed") is None:
        raise ConfigError(
            f"resources.sharding = {sharding!r} needs DeepSpeed, which no extra of memagent installs: "
            f"pip install deepspeed, or set it to 'fsdp'"
        )
    # The launcher decides, whatever the setting says.
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        sharding = "fsdp"
    elif os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE") == "3":
        sharding = "zero3"
    if sharding in ("fsdp", "zero3") and engine not in OWN_WEIGHTS:
        raise ConfigError(
            f"{sharding} shards the weights, so no process can generate with them (rollout.engine = {engine!r}): "
            f"set rollout.engine to 'vllm' or 'sglang', or sharding to 'none' or 'zero2' (resources.sharding, and the "
            f"config file of `accelerate launch`)"
        )


def _outcome(folder: RunFolder, config: TrainConfig) -> TrainingResult:
    lines = metrics.read(folder.metrics)
    rewards = [line["reward"] for line in lines if line.get("reward") is not None]
    return TrainingResult(
        out=folder.path,
        steps=config.optimizer.steps,
        evaluations={line["step"]: line["evaluation"] for line in lines if "evaluation" in line},
        reward=rewards[-1] if rewards else None,
        without_signal=sum(line.get(SIGNAL) == 1 for line in lines),
    )
