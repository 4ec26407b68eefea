"""One run of any agent as an async iterator of its events."""

import asyncio
import warnings
import weakref
from abc import ABC, abstractmethod
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
"""Keeps the tasks of runs alive: an event loop alone wouldn't."""


class Loop(ABC, Generic[R]):
    """What an agent does in one run: a coroutine determined by its effects."""

    agent: ClassVar[str]
    """Names the kind of agent in the binding."""
    again: ClassVar[str] = "agent.resume({!r})"
    """The call that resumes a run, given its id."""
    host: Agent[Any]
    """The agent whose run it is."""
    source: dict[str, Any]
    """What is stored about the document: `name`, `path`, `options`."""

    @abstractmethod
    async def prepare(self, known: RunRecord | None) -> Plan:
        """Resolves everything needed before the first call; `known` is the run, if it is already stored."""

    async def begin(self, log: Log) -> int:
        """Called once the run is held; returns the `seq` after which committed events are delivered again."""
        return -1

    @abstractmethod
    async def run(self, log: Log, caller: Caller, *, fresh: bool) -> R:
        """Runs to the end. The run is `fresh` if no events were committed before; otherwise they were delivered.

        Raises:
            ModelError: a call failed for good; the run can still be resumed.
            StoreError: a step could not be committed.
        """


async def drive(loop: Loop[R], run_id: str, outlet: Outlet | None = None) -> R:
    """Runs a loop until it ends or stops; an existing run with the same binding is resumed."""
    host = loop.host
    with host.around_run(run_id):
        store: RunStore = await in_thread(getattr, host, "store")
        record = await in_thread(store.find, run_id)
        # The record of another kind of agent has other fields; the run is refused below for its kind.
        match = record if record is not None and record.binding["agent"] == loop.agent else None
        plan = await loop.prepare(match)
        recipe = host.recipe()
        binding = {"agent": loop.agent, "extra_body": recipe.get("extra_body"), **plan.binding()}
        opening = Log.open(
            store, run_id, binding=binding, settings=recipe, source=loop.source, outlet=outlet
        )
        async with opening as log:
            fresh = await log.replay(await loop.begin(log)) == 0
            model = host.model
            if host.limits is not None:
                usage = await in_thread(store.spent, run_id)
                model = model.around(UsageLimit(model.inner, host.limits, spent=usage))
            sampling, seed = plan.settings.sampling, plan.settings.seed
            caller = Caller(model, plan.counter, plan.window, sampling=sampling, seed=seed, log=log)
            return await loop.run(log, caller, fresh=fresh)


class EventStream(Generic[R]):
    """One run as an async iterator of events, and its result at the end.

    After leaving the loop early, closing the stream stops the run: use `async with`, or `aclose`. A stream that is
    dropped stops its run too, with a `ResourceWarning`.
    """

    def __init__(self, loop: Loop[R], run_id: str | None) -> None:
        self.run_id = new_run_id() if run_id is None else check_run_id(run_id)
        self.again = loop.again.format(self.run_id)
        """The call that resumes the run."""
        self._loop = loop
        self._events: Outlet | None = None
        self._task: asyncio.Task[R] | None = None
        self._outcome: R | None = None
        self._failure: BaseException | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        if self._task is None and not self._closed:
            self._start()
        if self._task is None or self._events is None:
            raise StopAsyncIteration
        try:
            event = await self._events.get()
        except asyncio.CancelledError:
            await self.aclose()
            raise
        self._events.task_done()
        if event is not None:
            return event
        self._events.put_nowait(None)  # for later calls
        if not self._closed:
            self._failure = self._task.exception()
            self._outcome = self._task.result()  # raises what ended the run
        raise StopAsyncIteration

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Stops the run; it can be resumed."""
        self._closed = True
        if self._task is not None:
            if self._drop.detach():  # once: cancelled again, the run would leave its document open
                self._task.cancel()
            await asyncio.wait([self._task])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of run {self.run_id!r}>"

    @property
    def outcome(self) -> R:
        """The result of the run. Raises what ended it, or a `ConfigError` if the events weren't consumed to the end."""
        if self._outcome is None:
            ended = f"its stream was closed; {self.again} continues it"
            advice = ended if self._closed else "consume all its events first"
            raise self._failure or ConfigError(f"run {self.run_id!r} has not ended: {advice}")
        return self._outcome

    async def finish(self) -> R:
        """Consumes the remaining events, and returns the result."""
        if self._task is None and not self._closed:  # nobody listens: no task is needed
            self._closed = True
            try:
                self._outcome = await drive(self._loop, self.run_id)
            except BaseException as error:
                self._failure = error
                raise
            return self._outcome
        async with self:
            async for _ in self:
                pass
        return self.outcome

    def _start(self) -> None:
        # The task refers to the events, not the stream, so that a dropped stream can be detected.
        events = self._events = Outlet()
        work = drive(self._loop, self.run_id, events)
        self._task = asyncio.create_task(work, name=f"memagent run {self.run_id}")
        _running.add(self._task)
        self._task.add_done_callback(_running.discard)
        self._task.add_done_callback(lambda _: events.put_nowait(None))
        event_loop = asyncio.get_running_loop()
        self._drop = weakref.finalize(self, _stop_dropped, self._task, event_loop, self.run_id)
        self._drop.atexit = False


def _stop_dropped(task: asyncio.Task[Any], loop: asyncio.AbstractEventLoop, run_id: str) -> None:
    if task.done() or loop.is_closed():
        return
    loop.call_soon_threadsafe(task.cancel)
    warnings.warn(
        f"the stream of run {run_id!r} was dropped before it ended: use `async with`, or close it with aclose()",
        ResourceWarning,
        stacklevel=2,
    )
