"""Runs pieces of work, a few at a time, each as soon as it can start."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from memagent.terminal import duration
from memagent_nano.errors import StageFailed
from memagent_nano.processes import stop_children_on_signals

Say = Callable[[str], object]


def always() -> bool:
    """Ready check of work without prerequisites."""
    return True


@dataclass(frozen=True)
class Work:
    """One piece of work."""

    name: str
    do: Callable[[], object]
    log: Path | None = None
    """File to follow while it runs."""
    ready: Callable[[], bool] = always
    """Returns whether it can start."""


def perform_all(work: Sequence[Work], *, jobs: int, say: Say) -> None:
    """Runs all pieces. If one fails, no more are started, and running ones are awaited. Blocks.

    Args:
        work: pieces in an order in which they can be run.
        jobs: number of pieces at once.
        say: prints progress, a line at a time.

    Raises:
        MemagentError: raised by a piece of work.
        StageFailed: a piece could never start.
    """
    todo, total = list(work), len(work)
    running: dict[Future[float], Work] = {}
    with ThreadPoolExecutor(jobs) as pool, stop_children_on_signals():
        while todo or running:
            for piece in [piece for piece in todo if piece.ready()][: jobs - len(running)]:
                todo.remove(piece)
                say(f"{piece.name}: begun" + (f"; its log is {piece.log}" if piece.log else ""))
                running[pool.submit(_time, piece)] = piece
            if not running:
                names = ", ".join(piece.name for piece in todo)
                raise StageFailed(f"what these begin with is missing: {names}. Train it first")
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                piece = running.pop(future)
                _look(piece, future, running, say)
                count = len(todo) + len(running)
                say(f"{piece.name}: done in {duration(future.result())}; {count} of {total} left")


def _look(piece: Work, future: Future[float], others: dict[Future[float], Work], say: Say) -> None:
    """Raises what a piece of work raised, once the others have ended."""
    if future.exception() is not None:
        names = ", ".join(other.name for other in others.values())
        say(f"{piece.name}: failed" + (f"; waiting for {names}" if names else ""))
        wait(others)
        future.result()


def _time(piece: Work) -> float:
    """Runs a piece. Returns its seconds."""
    begun = time.monotonic()
    piece.do()
    return time.monotonic() - begun
