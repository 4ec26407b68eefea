"""What is evaluated or exported: a run's checkpoint, or a model as transformers writes it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

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
    """Of the run: the base of an adapter, and the tokenizer."""
    checkpoint: Checkpoint | None = None
    """None for a model that no run made."""

    @property
    def name(self) -> str:
        """In tables and records."""
        return self.model.path if self.checkpoint is None else str(self.checkpoint.path)

    def load(self) -> tuple[PreTrainedModel, Tokenizer]:
        """Weights (an adapter merged into them) and tokenizer.

        Raises:
            ConfigError: they cannot be loaded.
        """
        tokenizer = load_tokenizer(self.model)
        one = self.checkpoint
        model = with_checkpoint(self.model, one.path) if one else load_model(self.model)
        check_fit(model, tokenizer)
        return model, tokenizer


def run_target(path: Path, step: int | None = None) -> Target:
    """A checkpoint of a run's folder.

    Args:
        path: the folder.
        step: which one; None for the newest.

    Raises:
        ConfigError: it is no run's folder, or has no such whole checkpoint; those that it has are named.
    """
    folder = RunFolder(path)
    if not folder.settings.is_file():
        raise ConfigError(
            f"{str(path)!r} is no folder of a run (it has no config.toml): give what was --out of a training"
        )
    model = ModelSettings.model_validate_json(
        json.dumps(read_toml(folder.settings).get("model", {}))
    )
    whole = list_checkpoints(folder.checkpoints)
    chosen = [one for one in whole if step is None or one.step == step]
    if not chosen:
        there = ", ".join(str(one.step) for one in whole) or "none"
        wanted = "whole checkpoint" if step is None else f"whole checkpoint of step {step}"
        raise ConfigError(f"{str(path)!r} has no {wanted}; there are: {there}")
    return Target(model, chosen[-1])


def target_of(path: str, step: int | None, model: ModelSettings) -> Target:
    """A run's folder, a checkpoint's, a model's, or a name on the hub.

    Args:
        path: which.
        step: of a run's checkpoint; None for the newest.
        model: how a model that no run made is loaded.

    Raises:
        ConfigError: as `run_target`; or a step is asked of what is no run.
    """
    folder = Path(path)
    if (folder / "checkpoints").is_dir():
        return run_target(folder, step)
    if step is not None:
        raise ConfigError(
            f"{path!r} is no folder of a run, so it has no step {step}: leave --checkpoint out"
        )
    if (folder / ADAPTER).is_file():
        base = json.loads((folder / ADAPTER).read_bytes())["base_model_name_or_path"]
        return Target(model.model_copy(update={"path": base}), Checkpoint(folder, 0, 0))
    return Target(model.model_copy(update={"path": path, "revision": None}))
