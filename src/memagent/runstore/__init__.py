"""Runs on disk: every step is committed before anybody hears of it, so any run resumes."""

from memagent.runstore.lock import run_lock
from memagent.runstore.records import QuestionState, RunRecord, Step
from memagent.runstore.store import RunStore

__all__ = ["QuestionState", "RunRecord", "RunStore", "Step", "run_lock"]
