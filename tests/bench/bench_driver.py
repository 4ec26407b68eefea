"""Runs a small benchmark to its end, to be killed in between: bench_driver.py FOLDER LOG.

Each call that is sent becomes a line of LOG, so that what was sent is known even after a kill.
"""

import asyncio
import os
import sys
from pathlib import Path

from tests.bench.fakes import benchmark, grid, model, read, run, toys

from memagent import ChatRequest


def main(folder: Path, log: Path) -> None:
    sent = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def respond(request: ChatRequest) -> str:
        os.write(sent, f"{request.parts['question']} {request.kind} {request.seed}\n".encode())
        await asyncio.sleep(0.002)
        return read(request)

    asked = grid(
        tasks=toys("a", "b"), lengths=(2000, 4000), samples=3, systems=("memory", "direct")
    )
    asyncio.run(run(benchmark(folder, model=model(respond), grid=asked, concurrency=3)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
