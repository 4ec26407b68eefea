"""Runs one reading in forked children and kills each with SIGKILL at a random instant (see test_kill.py).

Usage: kill_driver.py FOLDER SEED KILLS QUESTIONS READ_AHEAD REREAD
Prints one JSON object: what each session sent, and what was committed when it began.
"""

import hashlib
import json
import os
import random
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from memagent import ChatRequest, MemoryAgent, Sampling, ScriptedModel

TEXT = "".join(
    f"Line {number} tells of the number {number * number % 9973}.\n" for number in range(4200)
)


def agent(folder: Path, log: int, store: str, ahead: int, again: int) -> MemoryAgent:
    def reply(request: ChatRequest) -> str:
        place = f"{request.parts['question']} {request.kind} {request.seed}\n"
        os.write(log, place.encode())  # one atomic append: what was sent is known even after a kill
        time.sleep(0.0005)
        if "unsettled" in request.parts:
            return request.parts["unsettled"]
        shown = "".join(message.content for message in request.messages)
        said = hashlib.sha256(shown.encode()).hexdigest()
        # With read-ahead, one memory in eight changes, and that depends on all that was shown.
        keeps = ahead > 1 and request.kind == "update" and said[0] in "0123456789abcd"
        return "[keep]" if keeps else f"{said}."

    # One small window: many chunks, and the text is made in the child, so nothing is shared.
    return MemoryAgent(
        ScriptedModel(reply, window=1408),
        store=folder / store,
        chunk_tokens=400,
        gate="update" if ahead > 1 else "off",
        sampling=Sampling(temperature=0) if ahead > 1 else None,
        # The unbroken run reads in order.
        read_ahead=ahead if store == "killed.sqlite" else 1,
        reread=again,
    )


def session(folder: Path, store: str, questions: list[str], path: Path, *given: int) -> None:
    log = os.open(folder / f"{store}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    agent(folder, log, store, *given).ask_many(path, questions, run_id="r1")
    os._exit(0)


def committed(folder: Path, store: str) -> list[str]:
    """Kind and number of the committed calls, read as another process would."""
    if not (folder / store).exists():
        return []
    with closing(sqlite3.connect(folder / store)) as opened:
        if not opened.execute("SELECT 1 FROM sqlite_master WHERE name = 'effects'").fetchone():
            return []  # killed between making the file and its tables
        rows = opened.execute(
            "SELECT kind, number FROM effects WHERE committed IS NOT NULL AND kind GLOB '*/q*'"
        ).fetchall()
    return [f"{kind} {number}" for kind, number in rows]


def lines(folder: Path, store: str) -> list[str]:
    path = folder / f"{store}.log"
    return path.read_text().splitlines() if path.exists() else []


def wait_for(folder: Path, store: str, lines_wanted: int, child: int) -> None:
    """Waits until so many calls were sent in all, or the child is gone."""
    while len(lines(folder, store)) < lines_wanted:
        if os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
            return
        time.sleep(0.001)


def main() -> None:
    folder, seed, kills, questions, *given = Path(sys.argv[1]), *map(int, sys.argv[2:])
    draw = random.Random(seed)
    asked = [f"Line {number}?" for number in range(questions)]
    path = folder / "text.txt"
    path.write_text(TEXT)
    child = os.fork()
    if child == 0:
        session(folder, "unbroken.sqlite", asked, path, *given)
    os.waitpid(child, 0)
    total = len(lines(folder, "unbroken.sqlite"))
    # Most kills are spread over the calls of the run, some hit a session while it starts.
    # With rereads, which end a run, half of them.
    late = total - 2 * given[1] * questions if given[1] else 1
    places = sorted(draw.randrange(late if n % 2 else 1, total) for n in range(kills))
    sessions = []
    for attempt in range(kills + 1):
        before, known = len(lines(folder, "killed.sqlite")), committed(folder, "killed.sqlite")
        child = os.fork()
        if child == 0:
            session(folder, "killed.sqlite", asked, path, *given)
        if attempt < kills:
            if attempt % 5 == 0:
                time.sleep(draw.uniform(0.0, 0.08))
            else:
                wait_for(folder, "killed.sqlite", max(places[attempt], before + 1), child)
                time.sleep(draw.uniform(0.0, 0.004))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        sessions.append(
            {
                "killed": os.WIFSIGNALED(status),
                "committed": known,
                "sent": lines(folder, "killed.sqlite")[before:],
            }
        )
    print(json.dumps(sessions))


if __name__ == "__main__":
    main()
