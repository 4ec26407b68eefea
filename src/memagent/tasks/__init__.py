"""Samples and scores: what benchmarks measure and training rewards."""

from memagent.tasks.base import Evidence, Sample, Task
from memagent.tasks.scores import SCORERS, Scorer

__all__ = ["SCORERS", "Evidence", "Sample", "Scorer", "Task"]
