"""An extraction killed at any instant resumes: no row is lost or doubled, and no committed reply is sent again."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.test_kill import without_repeats

from memagent import RunStore
from memagent.memory.extraction import ROW, stored_rows
from memagent.memory.state import restore

DRIVER = Path(__file__).with_name("kill_rows_driver.py")
KILLS = 25


@pytest.mark.timeout(300)
def test_a_killed_extraction_ends_like_an_unbroken_one(tmp_path: Path) -> None:
    command = [sys.executable, str(DRIVER), str(tmp_path), "20261125", str(KILLS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    said = json.loads(done.stdout)
    assert said["killed"] == [True] * KILLS + [False]
    killed, unbroken = RunStore(tmp_path / "killed.sqlite"), RunStore(tmp_path / "unbroken.sqlite")
    rows, others = (list(stored_rows(s, "r1", ROW, dict)) for s in (killed, unbroken))
    assert rows == others
    assert len(rows) == len({row["row"] for row in rows}) > 500
    assert without_repeats(list(killed.events("r1"))) == without_repeats(
        list(unbroken.events("r1"))
    )
    assert restore(killed, "r1", 1) == restore(unbroken, "r1", 1)
    assert list(killed.conversations("r1")) == list(unbroken.conversations("r1"))
    total, reference = killed.usage("r1"), unbroken.usage("r1")
    assert total.calls == reference.calls > 200
    assert total.repeated <= KILLS
    assert said["sent"] <= total.calls + total.repeated
    killed.close()
    unbroken.close()
