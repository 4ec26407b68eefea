"""Promise 3 for a branch: killed at any instant it resumes, and costs what was left to read."""

import subprocess
import sys
from pathlib import Path

import pytest

from memagent import RunStore

DRIVER = Path(__file__).with_name("kill_branch_driver.py")
BEFORE = 60


@pytest.mark.timeout(120)
def test_a_killed_branch_ends_like_an_unbroken_one(tmp_path: Path) -> None:
    command = [sys.executable, str(DRIVER), str(tmp_path), "35", "20", str(BEFORE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    sessions = int(done.stdout)
    assert sessions > 3
    stores = [RunStore(tmp_path / name) for name in ("killed", "unbroken")]
    told = [[event.model_dump() for event in store.events("new")] for store in stores]
    for event in (*told[0], *told[1]):
        if "usage" in event:
            event["usage"]["repeated"] = 0
    assert told[0] == told[1]
    assert [event["seq"] for event in told[0]] == list(range(len(told[0])))
    killed, unbroken = (store.usage("new") for store in stores)
    assert killed.model_copy(update={"repeated": 0}) == unbroken
    assert killed.repeated <= sessions
    chunks = stores[1].count("old", "chunk")
    assert unbroken.calls == chunks + 1 - BEFORE > 10
    assert all(store.is_answered("new") for store in stores)
