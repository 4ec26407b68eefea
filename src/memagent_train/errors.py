"""Errors of training; they stand below `memagent.MemagentError`.

MemagentError
├── ConfigError               a setting is wrong; nothing was started
│   └── DataError             training data lacks a column, a row is unusable, or too few are left
└── TrainingError             training stopped; the last checkpoint is whole and can be resumed
    ├── RewardFailed          no rollout of a whole batch could be scored
    ├── RolloutsFailed        no rollout of a whole batch came to an end
    ├── EngineMismatch        what was sampled is not the policy that is trained
    ├── OutOfMemory           the batch does not fit the device
    ├── DiskFull              a checkpoint or log cannot be written
    └── CheckpointMismatch    the folder holds a run with other settings
"""

from __future__ import annotations

from memagent.errors import ConfigError, MemagentError


class DataError(ConfigError):
    """Training data lacks a column, a row is unusable, or too few are left."""


class TrainingError(MemagentError):
    """Training stopped; the last checkpoint is whole, and the same command goes on from it."""


class RewardFailed(TrainingError):
    """No rollout of a whole batch could be scored."""


class RolloutsFailed(TrainingError):
    """No rollout of a whole batch came to an end."""


class EngineMismatch(TrainingError):
    """What was sampled is not the policy that is trained: the engine has other weights."""


class OutOfMemory(TrainingError):
    """The batch does not fit the device."""


class DiskFull(TrainingError):
    """A checkpoint or a log cannot be written."""


class CheckpointMismatch(TrainingError):
    """The folder holds a run with other settings."""
