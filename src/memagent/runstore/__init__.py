"""Runs on disk: every step is committed before anybody hears of it, so any run resumes."""

from memagent.runstore.binding import list_differences
from memagent.runstore.lock import hold_folder, run_lock
from memagent.runstore.records import QuestionState, RunRecord, Step
from memagent.runstore.store import RunStore

__all__ = [
    "QuestionState",
    "RunRecord",
    "RunStore",
    "Step",
    "hold_folder",
    "list_differences",
    "run_lock",
]
