"""`memagent map` killed at any instant: the next call continues, and no document is lost or answered twice."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DOCUMENTS = 40


@pytest.mark.timeout(300)
def test_a_killed_map_continues(tmp_path: Path) -> None:
    (folder := tmp_path / "docs").mkdir()
    for number in range(DOCUMENTS):
        line = f"In the year {number} Natasha did marry Pierre. Nothing else of note happened.\n"
        (folder / f"{number}.txt").write_text(line * 1500)
    out, draw = tmp_path / "rows.jsonl", random.Random(20261125)
    command = [sys.executable, "-m", "memagent", "map", str(folder), "Whom did Natasha marry?"]
    command += [
        "--model",
        "extractive",
        "--out",
        str(out),
        "--store",
        str(tmp_path / "runs.sqlite"),
    ]
    seen = 0
    for _ in range(5):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wanted, deadline = seen + draw.randrange(1, 5), time.monotonic() + 60
        while _lines(out) < wanted and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.005)
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL, "it ended before it was killed"
        assert _lines(out) >= seen
        seen = _lines(out)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"{seen} of {DOCUMENTS} have an answer" in done.stdout
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert len({row["document"] for row in rows}) == len(rows) == DOCUMENTS
    for row in rows:
        assert row["usage"]["calls"] == row["chunks"] + 1
    assert sum(row["usage"]["repeated"] for row in rows) <= 5 * 8  # calls in flight at a kill


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0
