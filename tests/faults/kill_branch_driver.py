"""Branches from a run in forked children, and kills each with SIGKILL at a random instant (see test_kill_branch.py).

Usage: kill_branch_driver.py FOLDER SEED KILLS BEFORE
Prints how many were killed before they ended.
"""

import hashlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from memagent import ChatRequest, MemoryAgent, ScriptedModel

TEXT = "".join(f"Line {number} tells of the number {number * number}.\n" for number in range(500))


def agent(store: Path) -> MemoryAgent:
    def reply(request: ChatRequest) -> str:
        time.sleep(0.01)
        shown = "".join(message.content for message in request.messages) + str(request.seed)
        return f"{hashlib.sha256(shown.encode()).hexdigest()}."

    return MemoryAgent(ScriptedModel(reply, window=1408), store=store, chunk_tokens=200)


def child(work: Callable[[], object]) -> int:
    """Forks; the parent has no threads."""
    if (process := os.fork()) == 0:
        work()
        os._exit(0)
    return process


def main(folder: Path, seed: int, kills: int, before: int) -> None:
    chance, killed = random.Random(seed), 0
    document, store, other = (folder / name for name in ("lines.txt", "killed", "unbroken"))
    document.write_text(TEXT)
    for path in (store, other):
        os.waitpid(child(lambda: agent(path).ask(document, "Which number?", run_id="old")), 0)  # noqa: B023

    def branch(path: Path) -> Callable[[], object]:
        return lambda: agent(path).branch("old", before, new_id="new")

    for _ in range(kills):
        process = child(branch(store))
        time.sleep(chance.uniform(0.0, 0.12))
        os.kill(process, signal.SIGKILL)
        killed += os.waitpid(process, 0)[1] == signal.SIGKILL
    for path in (store, other):
        os.waitpid(child(branch(path)), 0)
    print(killed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
