"""Runs one tool session in forked children and kills each with SIGKILL at a random instant (see test_kill_tools.py).

Usage: kill_tools_driver.py FOLDER SEED KILLS EARLY IDEMPOTENT
Prints one JSON object a session: what it sent and ran, and what was committed when it began.
"""

import json
import os
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from tests.session.adding import PROMPTS, TASK, Reply, StrictModel, adder, adding_tools

from memagent import ChatRequest, ToolAgent

ITEMS = 240
WINDOW = 6000


class Notes:
    """A file of notes; what is not idempotent about it is that it only grows."""

    def __init__(self, path: Path, *, idempotent: bool) -> None:
        self.path, self.idempotent = path, idempotent

    def note(self, item: int) -> None:
        """Appends a line, and waits until the disk has it."""
        if self.idempotent and self.noted() >= item:
            return
        with self.path.open("a") as file:
            file.write(f"{item}\n")
            file.flush()
            os.fsync(file.fileno())
        time.sleep(0.002)  # done, and nobody has heard of it

    def noted(self) -> int:
        """The last line, 0 without any."""
        lines = self.path.read_text().split() if self.path.exists() else []
        return int(lines[-1]) if lines else 0


def session(folder: Path, store: str, early: float | None, *, idempotent: bool) -> None:
    log = os.open(folder / f"{store}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    respond = adder(ITEMS)

    def reply(request: ChatRequest) -> Reply:
        # One atomic append: what was sent is known even after a kill.
        os.write(log, f"sent {request.kind} {request.seed}\n".encode())
        time.sleep(0.0005)
        return respond(request)

    notes = Notes(folder / f"{store}.notes", idempotent=idempotent)
    tools = adding_tools(
        ran=lambda what: os.write(log, f"ran {what}\n".encode()),
        note=notes.note,
        noted=notes.noted,
        idempotent=idempotent,
    )
    agent = ToolAgent(
        StrictModel(reply, window=WINDOW),
        tools,
        max_steps=10_000,
        max_summaries=10_000,
        early=early,
        prompts=PROMPTS,
        store=folder / store,
    )
    agent.run(TASK, run_id="r1")
    os._exit(0)


def committed(folder: Path, store: str) -> list[str]:
    """Kind and number of the committed effects, read as another process would."""
    if not (folder / store).exists():
        return []
    with closing(sqlite3.connect(folder / store)) as opened:
        rows = opened.execute(
            "SELECT kind, number FROM effects WHERE committed IS NOT NULL"
        ).fetchall()
    return [f"{kind} {number}" for kind, number in rows]


def lines(folder: Path, store: str) -> list[str]:
    path = folder / f"{store}.log"
    return path.read_text().splitlines() if path.exists() else []


def wait_for(folder: Path, store: str, lines_wanted: int, child: int, last: str = "") -> None:
    """Waits until so much was done in all and the last of it begins so, or the child is gone."""
    while len(did := lines(folder, store)) < lines_wanted or not did[-1].startswith(last):
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.001)


def kill(
    folder: Path, seed: int, kills: int, run: Callable[[str], None], after: str = ""
) -> list[dict[str, object]]:
    """Runs once unbroken, then again and again in children that are killed.

    Args:
        folder: where the stores are.
        seed: of the instants.
        kills: how many children are killed.
        run: does the work in the store of that name, and ends the process.
        after: some of the kills come right after something that begins so.

    Returns:
        For each child whether it was killed, what it did, and what was committed before.
    """
    draw = random.Random(seed)
    child = os.fork()
    if child == 0:
        run("unbroken.sqlite")
    os.waitpid(child, 0)
    total = len(lines(folder, "unbroken.sqlite"))
    # Most kills are spread over what the run does, some hit a session while it starts or replays.
    places = sorted(draw.randrange(1, total) for _ in range(kills))
    processes: list[dict[str, object]] = []
    for attempt in range(kills + 1):
        before, known = len(lines(folder, "killed.sqlite")), committed(folder, "killed.sqlite")
        child = os.fork()
        if child == 0:
            run("killed.sqlite")
        if attempt < kills:
            place = max(places[attempt], before + 1)
            if attempt % 5 == 4:
                time.sleep(draw.uniform(0.0, 0.2))
            elif attempt in {2, 7, 12}:
                wait_for(folder, "killed.sqlite", place, child, after)
            else:
                wait_for(folder, "killed.sqlite", place, child)
                time.sleep(draw.uniform(0.0, 0.006))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        did = lines(folder, "killed.sqlite")[before:]
        processes.append({"killed": os.WIFSIGNALED(status), "committed": known, "did": did})
    return processes


def main() -> None:
    folder, seed, kills = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    early, idempotent = float(sys.argv[4]) or None, sys.argv[5] == "yes"
    run = partial(session, folder, early=early, idempotent=idempotent)
    print(json.dumps(kill(folder, seed, kills, run)))


if __name__ == "__main__":
    main()
