"""Ends a training immediately on a signal: the last complete checkpoint is already on disk."""

import os
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Signalled(KeyboardInterrupt):
    """SIGINT or SIGTERM was received. Not an `Exception`, so that it isn't mistaken for a failed rollout.

    Args:
        number: the signal's number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"signal {number}")
        self.number = number


@contextmanager
def stop_on_signals() -> Generator[None]:
    """Raises `Signalled` in the block at the first signal; a second one ends the process.

    Has no effect outside the main thread, which alone gets signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        if caught:
            os._exit(128 + number)
        caught.append(number)
        raise Signalled(number)

    handlers = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
