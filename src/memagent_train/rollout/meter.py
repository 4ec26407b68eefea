"""An engine's utilisation: idle share, tokens per second, conversations in flight."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Utilization:
    """An engine's utilisation between two `Meter.read`s."""

    seconds: float
    idle_share: float
    """Share of the time that the engine was idle, from 0 to 1."""
    calls: int
    """Number of answered calls."""
    prompt_tokens: int
    sampled_tokens: int
    tokens_per_second: float
    """Sampled tokens per second, including idle time."""
    in_flight_mean: float
    """Average number of calls waiting for a reply."""
    in_flight_max: int

    def as_metrics(self) -> dict[str, float]:
        """Returns the figures by name."""
        return {name: float(value) for name, value in asdict(self).items()}


class Meter:
    """Accumulates an engine's work. Thread-safe.

    Args:
        clock: seconds, with any origin.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._in_flight = self._working = 0
        self._start(clock())

    def _start(self, now: float) -> None:
        self._started = self._last = now
        self._busy = self._waiting = 0.0
        self._most = self._in_flight
        self._calls = self._prompt = self._sampled = 0

    def read(self) -> Utilization:
        """Returns the figures since the last call and starts a new interval; work in progress counts in both."""
        with self._lock:
            now = self._pass()
            seconds = now - self._started
            share = 1 - self._busy / seconds if seconds > 0 else 1.0
            measured = Utilization(
                seconds=seconds,
                idle_share=min(max(share, 0.0), 1.0),
                calls=self._calls,
                prompt_tokens=self._prompt,
                sampled_tokens=self._sampled,
                tokens_per_second=self._sampled / seconds if seconds > 0 else 0.0,
                in_flight_mean=self._waiting / seconds if seconds > 0 else 0.0,
                in_flight_max=self._most,
            )
            self._start(now)
            return measured

    @contextmanager
    def computing(self) -> Generator[None]:
        """Counts the engine as computing inside the block; blocks may overlap."""
        with self._lock:
            self._pass()
            self._working += 1
        try:
            yield
        finally:
            with self._lock:
                self._pass()
                self._working -= 1

    @contextmanager
    def call(self) -> Generator[None]:
        """Counts a call as waiting for its reply inside the block."""
        with self._lock:
            self._pass()
            self._in_flight += 1
            self._most = max(self._most, self._in_flight)
        try:
            yield
        finally:
            with self._lock:
                self._pass()
                self._in_flight -= 1

    def count_call(self, prompt_tokens: int, sampled_tokens: int) -> None:
        """Counts an answered call."""
        with self._lock:
            self._calls += 1
            self._prompt += prompt_tokens
            self._sampled += sampled_tokens

    def _pass(self) -> float:
        """Attributes the time since the last change to busy and waiting time."""
        now = self._clock()
        passed = now - self._last
        self._busy += passed * (self._working > 0)
        self._waiting += passed * self._in_flight
        self._last = now
        return now
