"""One run as an async iterator of its events, whatever agent it is of."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Generic, Self, TypeVar

from memagent.errors import ConfigError
from memagent.events import Event
from memagent.run.runner import check_run_id, new_run_id

R = TypeVar("R")
_running: set[asyncio.Task[None]] = set()
"""Keeps the tasks of runs alive: an event loop alone would not."""


class EventStream(ABC, Generic[R]):
    """One run as an async iterator of events, and what came of it when it is through.

    Leaving a loop early keeps the run open until the stream is closed, or its event loop ends: use `async
    with`, or `aclose`.
    """

    def __init__(self, run_id: str | None) -> None:
        self.run_id = new_run_id() if run_id is None else check_run_id(run_id)
        self._outcome: R | None = None
        self._queue: asyncio.Queue[Event] = asyncio.Queue(1)
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @abstractmethod
    def _run(self) -> AsyncGenerator[Event]:
        """Runs to the end, and sets `_outcome`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._pump(), name=f"memagent run {self.run_id}")
            _running.add(self._task)
            self._task.add_done_callback(_running.discard)
        while self._queue.empty():
            if self._task is None or self._task.done():
                if self._task is not None and not self._closed:
                    self._task.result()  # raises what ended the run
                raise StopAsyncIteration
            getter = asyncio.ensure_future(self._queue.get())
            try:
                await asyncio.wait({getter, self._task}, return_when=asyncio.FIRST_COMPLETED)
                if getter.done():
                    return getter.result()
            except asyncio.CancelledError:
                await self.aclose()
                raise
            finally:
                getter.cancel()
        return self._queue.get_nowait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stops the run where it is; it stays resumable."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of run {self.run_id!r}>"

    @property
    def outcome(self) -> R:
        """What came of the run.

        Raises:
            ConfigError: the events were not consumed to the end.
        """
        if self._outcome is None:
            raise ConfigError(
                f"run {self.run_id!r} is not through: consume its events to the end first"
            )
        return self._outcome

    async def finish(self) -> R:
        """Consumes the remaining events."""
        if self._task is None and not self._closed:  # nobody listens: no task is needed
            self._closed = True
            async with aclosing(self._run()) as events:
                async for _ in events:
                    pass
        async with self:
            async for _ in self:
                pass
        return self.outcome

    async def _pump(self) -> None:
        # A task of its own closes the run in order when its loop ends, also where a loop over the events
        # was left in the middle: a chain of suspended generators would be closed in any order, with noise.
        async with aclosing(self._run()) as events:
            async for event in events:
                await self._queue.put(event)
