"""Errors of this package only. They derive from `memagent_train.errors.TrainingError`."""

from __future__ import annotations

from memagent_train.errors import TrainingError


class StageFailed(TrainingError):
    """Raised if a process of a stage failed; the message has the end of its log. The same command resumes the stage."""
