"""What may go wrong here only. It stands below `memagent_train.errors.TrainingError`."""

from __future__ import annotations

from memagent_train.errors import TrainingError


class StageFailed(TrainingError):
    """A process of a stage failed; the message has the end of its log. The same command resumes the stage."""
