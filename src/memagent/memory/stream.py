"""`RunStream`: one run as an async iterator of events, and its results."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Protocol

from memagent.documents import Source, open_document
from memagent.events import Event, RunStarted
from memagent.memory.loop import Reading
from memagent.memory.plan import Plan
from memagent.models.limit import ConcurrencyLimit, Limits, UsageLimit
from memagent.run.result import Result
from memagent.run.runner import Journal
from memagent.run.stream import EventStream
from memagent.runstore import RunStore
from memagent.threads import in_thread
from memagent.trajectory import StopReason, Trajectory


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


class RunStream(EventStream[list[Result]]):
    """One reading as an async iterator of events; `results` when it is through."""

    def __init__(
        self,
        agent: Reader,
        questions: tuple[str, ...],
        document: Source | None,
        run_id: str | None,
    ) -> None:
        super().__init__(run_id)
        self._agent, self._questions, self._document = agent, questions, document

    @property
    def results(self) -> list[Result]:
        """One result a question, in their order.

        Raises:
            ConfigError: the events were not consumed to the end.
        """
        return self.outcome

    @property
    def result(self) -> Result:
        """The first (with one question, the only) result."""
        return self.results[0]

    async def _run(self) -> AsyncGenerator[Event]:
        agent = self._agent
        document = None
        if self._document is not None:
            document = await in_thread(open_document, self._document)
        store = await in_thread(lambda: agent.store)
        known = await in_thread(store.find, self.run_id)
        window = None
        # A tool session's run has another window, and is refused for what it is.
        if known is not None and known.binding["agent"] == "memory":
            window = known.binding["budget"]["window"]
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
            self._outcome = await in_thread(results_of, store, self.run_id, reading.stopped)


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
