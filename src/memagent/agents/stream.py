"""`RunStream`: one run as an async iterator of events, and its results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Any, Protocol

from memagent.agents.plan import Plan
from memagent.agents.reading import Reading
from memagent.agents.result import Result
from memagent.documents import Source, open_document
from memagent.errors import ConfigError
from memagent.events import Event, RunStarted
from memagent.models.limit import ConcurrencyLimit, Limits, UsageLimit
from memagent.runner import Journal, check_run_id, new_run_id
from memagent.runstore import RunStore
from memagent.threads import in_thread
from memagent.trajectory import StopReason, Trajectory

_running: set[asyncio.Task[None]] = set()
"""Keeps the tasks of runs alive: an event loop alone would not."""


class Reader(Protocol):
    """What a stream needs of the agent that made it."""

    model: ConcurrencyLimit
    limits: Limits | None

    @property
    def store(self) -> RunStore:
        """Where runs are kept."""
        ...

    async def plan(self, questions: tuple[str, ...], *, window: int | None = None) -> Plan:
        """See `MemoryAgent.plan`."""
        ...

    def recipe(self) -> dict[str, Any]:
        """See `MemoryAgent.recipe`."""
        ...


class RunStream:
    """One run as an async iterator of events; `results` when it is through.

    Leaving a loop early keeps the run open until the stream is closed, or its event loop ends: use `async
    with`, or `aclose`.
    """

    def __init__(
        self,
        agent: Reader,
        questions: tuple[str, ...],
        document: Source | None,
        run_id: str | None,
    ) -> None:
        self.run_id = new_run_id() if run_id is None else check_run_id(run_id)
        self._agent, self._questions, self._document = agent, questions, document
        self._results: list[Result] | None = None
        self._queue: asyncio.Queue[Event] = asyncio.Queue(1)
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def __aiter__(self) -> RunStream:
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

    async def __aenter__(self) -> RunStream:
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
        return f"<RunStream of run {self.run_id!r}>"

    @property
    def results(self) -> list[Result]:
        """One result a question, in their order.

        Raises:
            ConfigError: the events were not consumed to the end.
        """
        if self._results is None:
            raise ConfigError(
                f"run {self.run_id!r} is not through: consume its events to the end first"
            )
        return self._results

    @property
    def result(self) -> Result:
        """The first (with one question, the only) result."""
        return self.results[0]

    async def finish(self) -> list[Result]:
        """Consumes the remaining events."""
        if self._task is None and not self._closed:  # nobody listens: no task is needed
            self._closed = True
            async with aclosing(self._run()) as events:
                async for _ in events:
                    pass
        async with self:
            async for _ in self:
                pass
        return self.results

    async def _pump(self) -> None:
        # A task of its own closes the run in order when its loop ends, also where a loop over the events
        # was left in the middle: a chain of suspended generators would be closed in any order, with noise.
        async with aclosing(self._run()) as events:
            async for event in events:
                await self._queue.put(event)

    async def _run(self) -> AsyncGenerator[Event]:
        agent = self._agent
        document = None
        if self._document is not None:
            document = await in_thread(open_document, self._document)
        store = await in_thread(lambda: agent.store)
        known = await in_thread(store.find, self.run_id)
        window = None if known is None else known.binding["budget"]["window"]
        plan = await agent.plan(self._questions, window=window)
        source: dict[str, Any] = {"name": "", "path": None}
        if document is not None:
            path = document.path if document.rereadable else None
            source = {"name": document.name, "path": path, "options": document.options}
        opened = Journal.open(
            store, self.run_id, binding=plan.binding(), settings=agent.recipe(), source=source
        )
        async with opened as journal:
            model = agent.model
            if agent.limits is not None:
                spent = await in_thread(store.usage, self.run_id)
                model = model.around(UsageLimit(model.inner, agent.limits, spent=spent))
            reading = Reading(plan, model, document, journal)
            started = RunStarted(
                run_id=self.run_id,
                model=plan.model,
                document=source["name"],
                questions=plan.questions,
                counter=plan.counter.name,
                window=plan.budget.window,
                chunk_tokens=plan.budget.chunk,
                memory_tokens=plan.budget.memory,
            )
            async with aclosing(reading.events(started)) as events:
                async for event in events:
                    yield event
            self._results = await in_thread(results_of, store, self.run_id, reading.stopped)


def results_of(
    store: RunStore, run_id: str, stopped: Mapping[int, tuple[StopReason, str]]
) -> list[Result]:
    """Reads a run's results back from the store. Blocks.

    Args:
        store: where the run is.
        run_id: the run.
        stopped: why questions without an answer have none.
    """
    questions: list[str] = store.get(run_id).binding["questions"]
    results: list[Result] = []
    for state in store.state(run_id, len(questions)):
        reason, detail = StopReason.SETTLED if state.settled else StopReason.ANSWERED, ""
        if state.answer is None:
            reason, detail = stopped[state.question]
        results.append(
            Result(
                question=questions[state.question],
                answer=state.answer,
                memory=state.memory,
                stop_reason=reason,
                usage=store.usage(run_id, state.question),
                chunks=state.next_chunk,
                run_id=run_id,
                trajectory=Trajectory(
                    store.conversations(run_id, state.question), state.answer, reason
                ),
                detail=detail,
            )
        )
    return results
