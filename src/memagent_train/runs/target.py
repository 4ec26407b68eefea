"""The policy to evaluate or export: a run's checkpoint, or a model in transformers' format."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from memagent.errors import ConfigError
from memagent_train.config.sections import ModelSettings
from memagent_train.config.toml import read_toml
from memagent_train.runs.checkpoints import Checkpoint, list_checkpoints
from memagent_train.runs.folder import RunFolder
from memagent_train.runs.policy import (
    ADAPTER,
    Tokenizer,
    check_fit,
    load_model,
    load_tokenizer,
    with_checkpoint,
)


@dataclass(frozen=True)
class Target:
    """A policy that can be loaded."""

    model: ModelSettings
    """Model settings of the run, with the checkpoint's tokenizer if it has one: the base of an adapter."""
    checkpoint: Checkpoint | None = None
    """Checkpoint to load; None for a model that isn't from a run."""

    @property
    def name(self) -> str:
        """Name in tables and records."""
        return self.model.path if self.checkpoint is None else str(self.checkpoint.path)

    def load(self, *, merge: torch.dtype | None = None) -> tuple[PreTrainedModel, Tokenizer]:
        """Loads weights (with an adapter merged in a dtype, see `with_checkpoint`) and tokenizer.

        Raises:
            ConfigError: they can't be loaded.
        """
        tokenizer = load_tokenizer(self.model)
        checkpoint = self.checkpoint
        model = (
            with_checkpoint(self.model, checkpoint.path, merge=merge)
            if checkpoint
            else load_model(self.model)
        )
        check_fit(model, tokenizer)
        return model, tokenizer


def run_target(path: Path, step: int | None = None) -> Target:
    """Finds a checkpoint in a run's folder.

    Args:
        path: the folder.
        step: step of the checkpoint; None: the newest.

    Raises:
        ConfigError: it isn't a run's folder, or has no such complete checkpoint; the message lists those there are.
    """
    folder = RunFolder(path)
    if not folder.settings.is_file():
        raise ConfigError(
            f"{str(path)!r} is not the folder of a run (it has no config.toml): give the --out of a training"
        )
    model = ModelSettings.model_validate_json(
        json.dumps(read_toml(folder.settings).get("model", {}))
    )
    checkpoints = list_checkpoints(folder.checkpoints)
    chosen = [checkpoint for checkpoint in checkpoints if step is None or checkpoint.step == step]
    if not chosen:
        steps = ", ".join(str(checkpoint.step) for checkpoint in checkpoints) or "none"
        wanted = "complete checkpoint" if step is None else f"complete checkpoint of step {step}"
        raise ConfigError(f"{str(path)!r} has no {wanted}; there are: {steps}")
    trained = chosen[-1].path
    if (
        trained / "tokenizer_config.json"
    ).is_file():  # as trained, wherever the first model is by now
        model = model.model_copy(update={"tokenizer": str(trained), "chat_template": None})
    return Target(model, chosen[-1])


def target_of(path: str, step: int | None, model: ModelSettings) -> Target:
    """Finds the policy in a run's, checkpoint's or model's folder, or by a name on the hub.

    Args:
        path: the folder or name.
        step: step of a run's checkpoint; None: the newest.
        model: how to load a model that isn't from a run.

    Raises:
        ConfigError: see `run_target`; or a step is given, but it isn't a run; or an adapter doesn't name its model.
    """
    folder = Path(path)
    if (folder / "checkpoints").is_dir():
        return run_target(folder, step)
    if step is not None:
        raise ConfigError(
            f"{path!r} is not the folder of a run, so it has no step {step}: leave --checkpoint out"
        )
    if (folder / ADAPTER).is_file():
        base = _base(folder / ADAPTER)
        return Target(model.model_copy(update={"path": base}), Checkpoint(folder, 0, 0))
    return Target(model.model_copy(update={"path": path, "revision": None}))


def _base(settings: Path) -> str:
    """Returns the model that an adapter's settings name."""
    try:
        base = json.loads(settings.read_bytes())["base_model_name_or_path"]
    except (ValueError, TypeError, KeyError):
        base = None
    if not isinstance(base, str) or not base:
        raise ConfigError(
            f"{str(settings)!r} doesn't name the model that the adapter is for: set base_model_name_or_path there"
        )
    return base
