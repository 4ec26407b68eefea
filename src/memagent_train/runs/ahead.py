"""Rollouts of the next step, made by a server while the current step trains."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from memagent_train.rollouts import Rollout

POLL = 0.001
"""Seconds."""


class Ahead:
    """At most one step's rollouts, made in a thread of their own. Close it after use.

    So rollouts are one step old at most: they are taken for the step that they were begun for, or dropped.

    Whoever starts them takes them before anything else uses the engine or its event loop.

    Args:
        cancel: ends the work in that thread soon, from another one; returns whether there was any yet.
    """

    def __init__(self, cancel: Callable[[], bool]) -> None:
        self._cancel = cancel
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollouts-ahead")
        self._work: tuple[int, tuple[int, ...], Future[list[Rollout]]] | None = None

    def start(self, step: int, indices: Sequence[int], work: Callable[[], list[Rollout]]) -> None:
        """Begins a step's rollouts.

        Args:
            step: the step that will train on them.
            indices: its samples.
            work: makes them.
        """
        self._work = step, tuple(indices), self._thread.submit(work)

    def take(self, step: int) -> tuple[tuple[int, ...], list[Rollout]] | None:
        """A step's samples and their rollouts once all are made; None if they weren't begun.

        Raises:
            Exception: what making them raised.
        """
        if self._work is None:
            return None
        begun, indices, rollouts = self._work
        batch = rollouts.result()
        self._work = None
        return (indices, batch) if begun == step else None

    def close(self) -> None:
        """Cancels what is being made, and waits for its end."""
        if self._work is not None:
            work = self._work[2]
            # A thread that has just started isn't at its work yet. Once is enough: more would cut its ending short.
            while not (work.cancel() or work.done() or self._cancel()):
                time.sleep(POLL)
        self._thread.shutdown(cancel_futures=True)
        self._work = None
