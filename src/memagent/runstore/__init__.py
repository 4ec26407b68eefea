"""Runs on disk: every step is committed before anybody hears of it, so any run resumes."""

from memagent.runstore.lock import run_lock
from memagent.runstore.records import Begun, RunRecord, split_key
from memagent.runstore.store import RunStore

__all__ = ["Begun", "RunRecord", "RunStore", "run_lock", "split_key"]
