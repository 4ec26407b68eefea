"""Runs on disk: every step is committed before its events are delivered, so any run can be resumed."""

from memagent.runstore.lock import hold_folder, run_lock
from memagent.runstore.records import Begun, RunRecord, list_differences, split_key
from memagent.runstore.store import RunStore

__all__ = [
    "Begun",
    "RunRecord",
    "RunStore",
    "hold_folder",
    "list_differences",
    "run_lock",
    "split_key",
]
