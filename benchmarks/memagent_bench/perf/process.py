"""Measurements that need a fresh process: peak memory of whole runs, and the time of `import memagent`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from memagent_bench.perf.chunks import book
from memagent_bench.perf.measure import Row

RUN = """
import sys
from pathlib import Path
from memagent import MemoryAgent
from memagent_bench.perf.loop import Instant
from memagent_bench.perf.measure import measure_resident

folder = Path(sys.argv[1])
agent = MemoryAgent(Instant(), store=folder / "runs.sqlite")
result = agent.ask(folder / sys.argv[2], "When did Natasha marry?")
agent.close()
print(measure_resident())
"""


def python(*arguments: str) -> str:
    """Runs this Python in a fresh process; returns its output."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def memory(repeats: int = 3) -> list[Row]:
    """Measures peak resident memory of reading 1 MB and 100 MB, and their ratio."""
    novel = book().encode()
    small: list[float] = []
    large: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "1.txt").write_bytes(novel[:1_000_000].rsplit(b"\n", 1)[0])
        (folder / "100.txt").write_bytes((novel * 31)[:100_000_000].rsplit(b"\n", 1)[0])
        for _ in range(repeats):
            small.append(float(python("-c", RUN, name, "1.txt")))
            large.append(float(python("-c", RUN, name, "100.txt")))
    ratios = [two / one for one, two in zip(small, large, strict=True)]
    return [
        Row("peak memory reading 1 MB", small, "MiB"),
        Row("peak memory reading 100 MB", large, "MiB"),
        Row("peak memory, 100 MB against 1 MB", ratios, most=1.2),
    ]


def startup(repeats: int = 15) -> Row:
    """Measures the seconds that `import memagent` adds to an idle Python."""
    times: list[float] = []
    for _ in range(repeats):
        start = time.perf_counter()
        python("-c", "pass")
        middle = time.perf_counter()
        python("-c", "import memagent")
        times.append(time.perf_counter() - middle - (middle - start))
    return Row("`import memagent`", times, "s", most=0.3)
