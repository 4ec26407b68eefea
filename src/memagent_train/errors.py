"""Errors of training, under `memagent.MemagentError`.

MemagentError
├── ConfigError               a setting is wrong; nothing was started
│   └── DataError             training data lacks a column, a row is unusable, or too few are left
└── TrainingError             training stopped; it can be resumed from the last checkpoint
    ├── RewardFailed          no rollout of a whole batch could be scored
    ├── RolloutsFailed        no rollout of a whole batch finished
    ├── EngineMismatch        the sampling engine doesn't have the policy's weights
    ├── OutOfMemory           the batch does not fit the device
    ├── DiskFull              a checkpoint or log cannot be written
    └── CheckpointMismatch    the folder holds a run with other settings; a StoreError too
"""

from memagent.errors import ConfigError, MemagentError, StoreError


class DataError(ConfigError):
    """Training data lacks a column, a row is unusable, or too few are left."""


class TrainingError(MemagentError):
    """Training stopped; the same command resumes from the last complete checkpoint."""


class RewardFailed(TrainingError):
    """No rollout of a whole batch could be scored."""


class RolloutsFailed(TrainingError):
    """No rollout of a whole batch finished."""


class EngineMismatch(TrainingError):
    """The samples are not from the policy being trained: the engine has other weights."""


class OutOfMemory(TrainingError):
    """The batch does not fit the device."""


class DiskFull(TrainingError):
    """A checkpoint or a log cannot be written."""


class CheckpointMismatch(TrainingError, StoreError):
    """The folder holds a run with other settings."""
