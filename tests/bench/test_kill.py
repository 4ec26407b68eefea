"""A benchmark killed at any instant ends, once it is let, as one that never was."""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.bench.fakes import benchmark, grid, model, run, toys

from memagent_bench.records import every_record
from memagent_bench.systems.base import Status

ROOT = Path(__file__).parents[2]
KILLS = 4


def sent(log: Path) -> int:
    return log.read_bytes().count(b"\n") if log.exists() else 0


def test_killed_sessions_lose_and_double_nothing(tmp_path: Path) -> None:
    folder, log = tmp_path / "killed", tmp_path / "log"
    command = [sys.executable, "-m", "tests.bench.bench_driver", str(folder), str(log)]
    environ = {"PYTHONPATH": f"{ROOT}:{ROOT / 'benchmarks'}:{ROOT / 'src'}"}
    draw = random.Random(20261121)
    asked = grid(
        tasks=toys("a", "b"), lengths=(2000, 4000), samples=3, systems=("memory", "direct")
    )
    reference = model()
    asyncio.run(run(benchmark(tmp_path / "whole", model=reference, grid=asked)))
    total = len(reference.requests)
    for kill in range(KILLS):
        wanted = max(sent(log) + 1, int(total * (kill + draw.random()) / (KILLS + 1)))
        process = subprocess.Popen(command, cwd=ROOT, env=environ)
        while sent(log) < wanted and process.poll() is None:
            time.sleep(0.001)
        if process.poll() is not None:  # it ended before this process, on a busy machine, saw it
            break
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=20)
    subprocess.run(command, cwd=ROOT, env=environ, check=True, timeout=60)

    records, whole = list(every_record(folder)), list(every_record(tmp_path / "whole"))
    assert max(Counter(record.key for record in records).values()) == 1
    assert {record.status for record in records} == {Status.ANSWERED}
    assert {r.key: (r.answer, r.score, r.document) for r in records} == {
        r.key: (r.answer, r.score, r.document) for r in whole
    }
    assert any(record.resumed for record in records), "some were killed in their middle"
    committed = sum(record.usage.calls for record in records)
    assert committed == total
    # Besides the calls in flight (3 at a time), only samples of systems without runs begin anew: one call each.
    assert total <= sent(log) <= total + KILLS * 3
