"""One run as an async iterator of its events, whatever agent it is of."""

from __future__ import annotations

import asyncio
import warnings
import weakref
from abc import ABC, abstractmethod
from collections import deque
from types import TracebackType
from typing import Any, ClassVar, Generic, Self, TypeVar

from memagent.errors import ConfigError
from memagent.events import Event
from memagent.models.limit import UsageLimit
from memagent.run.agent import Agent
from memagent.run.caller import Caller
from memagent.run.log import Log, Outlet
from memagent.run.plan import Plan
from memagent.run.sync import check_run_id, new_run_id
from memagent.runstore import RunRecord, RunStore
from memagent.threads import in_thread

R = TypeVar("R")
_running: set[asyncio.Task[Any]] = set()
"""Keeps the tasks of runs alive: an event loop alone would not."""


class Loop(ABC, Generic[R]):
    """What an agent does in one run: a coroutine that is a function of its effects."""

    agent: ClassVar[str]
    """Names the kind of agent in the binding."""
    host: Agent
    """Whose run it is."""
    source: dict[str, Any]
    """What is kept about the document: `name`, `path`, `options`."""

    @abstractmethod
    async def prepare(self, known: RunRecord | None) -> Plan:
        """Resolves everything that is needed before the first call.

        Args:
            known: the stored run of this id and kind, None if there is none.
        """

    @abstractmethod
    async def run(self, log: Log, caller: Caller, *, fresh: bool) -> R:
        """Runs to the end.

        Args:
            log: of the run; the events committed before have been handed out.
            caller: makes the run's exchanges.
            fresh: nothing was committed before.

        Raises:
            ModelError: a call failed for good; the run stays resumable.
            StoreError: a step could not be committed.
        """


async def drive(loop: Loop[R], run_id: str, outlet: Outlet | None = None) -> R:
    """Runs a loop to its end, or to what stops it.

    Args:
        loop: what is to be done.
        run_id: names the run; an existing one with the same binding is finished.
        outlet: where events go.
    """
    host = loop.host
    store: RunStore = await in_thread(getattr, host, "store")
    known = await in_thread(store.find, run_id)
    # A run of another agent has other numbers, and is refused for what it is.
    same = known if known is not None and known.binding["agent"] == loop.agent else None
    plan = await loop.prepare(same)
    opened = Log.open(
        store,
        run_id,
        binding=plan.binding(),
        settings=host.recipe(),
        source=loop.source,
        outlet=outlet,
    )
    async with opened as log:
        fresh = await log.replay() == 0
        model = host.model
        if host.limits is not None:
            spent = await in_thread(store.usage, run_id)
            model = model.around(UsageLimit(model.inner, host.limits, spent=spent))
        caller = Caller(
            model, plan.counter, plan.window, sampling=plan.sampling, seed=plan.seed, log=log
        )
        return await loop.run(log, caller, fresh=fresh)


class _Handover:
    """Committed events on their way from a run to whoever iterates over it."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self._arrived = asyncio.Event()
        self._taken = asyncio.Event()

    async def hand_out(self, events: deque[Event]) -> None:
        """Waits until all are taken: a run does not run ahead of its reader."""
        self.events = events
        while events:
            self._taken.clear()
            self._arrived.set()
            await self._taken.wait()

    def take(self) -> Event:
        """The next event; there is one."""
        event = self.events.popleft()
        if not self.events:
            self._taken.set()
        return event

    async def wait(self, task: asyncio.Task[Any]) -> None:
        """Waits for an event, or for the end of the run."""
        self._arrived.clear()
        arrival = asyncio.ensure_future(self._arrived.wait())
        try:
            await asyncio.wait({arrival, task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            arrival.cancel()


class EventStream(Generic[R]):
    """One run as an async iterator of events, and what came of it at the end.

    Leaving a loop early stops the run when the stream is closed: use `async with`, or `aclose`. A stream that is only
    dropped stops its run too, with a `ResourceWarning`.
    """

    def __init__(self, loop: Loop[R], run_id: str | None) -> None:
        self.run_id = new_run_id() if run_id is None else check_run_id(run_id)
        self._loop = loop
        self._handover: _Handover | None = None
        self._task: asyncio.Task[R] | None = None
        self._abandon: weakref.finalize[Any, Any] | None = None
        self._outcome: R | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._task is None:
            if self._closed:
                raise StopAsyncIteration
            self._start()
        assert self._task is not None
        assert self._handover is not None
        while not self._handover.events:
            if self._task.done():
                if not self._closed:
                    self._end(self._task.result())  # raises what ended the run
                raise StopAsyncIteration
            try:
                await self._handover.wait(self._task)
            except asyncio.CancelledError:
                await self.aclose()
                raise
        return self._handover.take()

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
        if self._abandon is not None:
            self._abandon.detach()
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
                f"run {self.run_id!r} has not ended: consume its events to the end first"
            )
        return self._outcome

    async def finish(self) -> R:
        """Consumes the remaining events, and returns what came of the run."""
        if self._task is None and not self._closed:  # nobody listens: no task is needed
            self._closed = True
            self._outcome = await drive(self._loop, self.run_id)
            return self._outcome
        async with self:
            async for _ in self:
                pass
        return self.outcome

    def _start(self) -> None:
        # The task holds the handover, not the stream: so it shows when nobody holds the stream any more.
        self._handover = _Handover()
        work = drive(self._loop, self.run_id, self._handover)
        self._task = asyncio.create_task(work, name=f"memagent run {self.run_id}")
        _running.add(self._task)
        self._task.add_done_callback(_running.discard)
        here = asyncio.get_running_loop()
        self._abandon = weakref.finalize(self, _stop_abandoned, self._task, here, self.run_id)
        self._abandon.atexit = False

    def _end(self, outcome: R) -> None:
        self._outcome = outcome
        if self._abandon is not None:
            self._abandon.detach()


def _stop_abandoned(task: asyncio.Task[Any], loop: asyncio.AbstractEventLoop, run_id: str) -> None:
    """Stops the run of a stream that nobody holds any more."""
    if task.done() or loop.is_closed():
        return
    loop.call_soon_threadsafe(task.cancel)
    warnings.warn(
        f"the stream of run {run_id!r} was dropped before its end: use `async with`, or close it with aclose()",
        ResourceWarning,
        stacklevel=2,
    )
