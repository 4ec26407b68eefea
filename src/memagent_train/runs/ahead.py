"""Rollouts of the next step, which a server makes while the current step trains."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from memagent_train.rollouts import Rollout

POLL = 0.001
"""Seconds between attempts to cancel."""


class Ahead:
    """At most one step's rollouts, made in a separate thread. Close it after use.

    Rollouts are therefore at most one step old: they are taken for the step that they were started for, or dropped.
    The starter must take them before anything else uses the engine or its event loop.

    Args:
        cancel: soon ends the work in that thread, called from another; returns whether there was any yet.
    """

    def __init__(self, cancel: Callable[[], bool]) -> None:
        self._cancel = cancel
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rollouts-ahead")
        self._work: tuple[int, tuple[int, ...], Future[list[Rollout]]] | None = None

    def start(self, step: int, indices: Sequence[int], work: Callable[[], list[Rollout]]) -> None:
        """Starts a step's rollouts.

        Args:
            step: the step that will train on them.
            indices: samples of the step.
            work: makes the rollouts.
        """
        self._work = step, tuple(indices), self._thread.submit(work)

    def take(self, step: int) -> tuple[tuple[int, ...], list[Rollout]] | None:
        """Returns a step's samples and their rollouts once all are made; None if they weren't started.

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
        """Cancels the work in progress and waits for its end."""
        if self._work is not None:
            work = self._work[2]
            # A thread that has just started isn't working yet. Cancel once: again would cut its cleanup short.
            while not (work.cancel() or work.done() or self._cancel()):
                time.sleep(POLL)
        self._thread.shutdown(cancel_futures=True)
        self._work = None
