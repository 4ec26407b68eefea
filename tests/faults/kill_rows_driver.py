"""Runs one extraction in forked children and kills each with SIGKILL at a random instant (see test_kill_rows.py).

Usage: kill_rows_driver.py FOLDER SEED KILLS
Prints one JSON object: whether each session was killed, and what was sent in all.
"""

import json
import os
import random
import re
import signal
import sys
import time
from pathlib import Path

from kill_driver import lines, wait_for
from pydantic import BaseModel

from memagent import ChatRequest, MemoryAgent, ScriptedModel

TEXT = "".join(f"Line {n} tells of the number {n * n % 97}.\n" for n in range(2500))


class Told(BaseModel):
    """A row: there are 97 numbers at most, so most lines are duplicates but for their tens."""

    tens: int
    number: int


def session(folder: Path, store: str, path: Path) -> None:
    log = os.open(folder / f"{store}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def reply(request: ChatRequest) -> str:
        os.write(log, f"{request.seed}\n".encode())
        time.sleep(0.0005)
        again = "did not follow" in request.parts["memory"]
        found = re.findall(r"Line (\d+) tells of the number (\d+)", request.parts["chunk"])
        rows = [
            {"tens": int(line) // 100, "number": number if again or line[-1] != "7" else "?"}
            for line, number in found
        ]
        return "\n".join(map(json.dumps, rows))

    agent = MemoryAgent(ScriptedModel(reply, window=3600), store=folder / store, chunk_tokens=400)
    agent.extract(path, Told, "every number", run_id="r1")
    os._exit(0)


def main() -> None:
    folder, seed, kills = Path(sys.argv[1]), *map(int, sys.argv[2:])
    draw = random.Random(seed)
    path = folder / "text.txt"
    path.write_text(TEXT)
    child = os.fork()
    if child == 0:
        session(folder, "unbroken.sqlite", path)
    os.waitpid(child, 0)
    places = sorted(draw.randrange(1, len(lines(folder, "unbroken.sqlite"))) for _ in range(kills))
    killed = []
    for attempt in range(kills + 1):
        before = len(lines(folder, "killed.sqlite"))
        child = os.fork()
        if child == 0:
            session(folder, "killed.sqlite", path)
        if attempt < kills:
            wait_for(folder, "killed.sqlite", max(places[attempt], before + 1), child)
            time.sleep(draw.uniform(0.0, 0.004))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed.append(os.WIFSIGNALED(status))
    print(json.dumps({"killed": killed, "sent": len(lines(folder, "killed.sqlite"))}))


if __name__ == "__main__":
    main()
