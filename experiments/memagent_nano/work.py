"""Pieces of work, a few at a time, each as soon as it can be begun."""

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
    """Of work that needs nothing before it."""
    return True


@dataclass(frozen=True)
class Work:
    """One piece."""

    name: str
    do: Callable[[], object]
    log: Path | None = None
    """Where it can be looked at while it is done."""
    ready: Callable[[], bool] = always
    """Whether it can be begun."""


def perform_all(work: Sequence[Work], *, jobs: int, say: Say) -> None:
    """Does all of it. Where one fails, nothing more is begun, and what has been begun is waited for. Blocks.

    Args:
        work: in an order in which it can be done.
        jobs: how many pieces at once.
        say: prints progress, a line at a time.

    Raises:
        MemagentError: what a piece of work raised.
        StageFailed: a piece could never be begun.
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
    """Raises what a piece of work raised, when the others have come to an end."""
    if future.exception() is not None:
        names = ", ".join(other.name for other in others.values())
        say(f"{piece.name}: failed" + (f"; waiting for {names}" if names else ""))
        wait(others)
        future.result()


def _time(piece: Work) -> float:
    """Does it. Returns the seconds that it took."""
    begun = time.monotonic()
    piece.do()
    return time.monotonic() - begun
