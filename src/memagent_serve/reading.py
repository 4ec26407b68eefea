"""Reads documents of requests through a memory: one resumable run for each document, question and caller."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from pydantic import StrictInt

from memagent import MemoryAgent, Result, RunStore, Sampling, Usage, open_document
from memagent.memory.corpus import name_run
from memagent.messages import Leaf
from memagent.models import ChatModel
from memagent.texts import plural
from memagent_serve.long_messages import LongMessage
from memagent_serve.refusals import Refusal, validate
from memagent_serve.settings import Settings
from memagent_serve.wire import Progress

RUN_PREFIX = "serve"
"""Beginning of the ids of runs."""


class ReadingRequest(Leaf):
    """What a request specifies about how to read and answer."""

    owner: str
    """Owner of the request: runs aren't shared among owners."""
    temperature: float | None = None
    top_p: float | None = None
    seed: StrictInt | None = None
    stream: bool | None = None
    instructions: str | None = None

    @classmethod
    def of(cls, fields: dict[str, Any], owner: str) -> ReadingRequest:
        """Parses a request's fields. Raises `Refusal` if one has the wrong type."""
        values = {name: fields[name] for name in cls.model_fields.keys() & fields.keys()}
        return validate(cls, **values | {"owner": owner})


@dataclass(frozen=True)
class Reading:
    """A document that was read."""

    result: Result
    tokens: int
    """Tokens of the document's chunks."""
    paid: Usage
    """What this request paid: nothing if the run was already finished."""

    def report(self) -> dict[str, Any]:
        """Reports what was read, for the response."""
        return {
            "run_id": self.result.run_id,
            "chunks": self.result.chunks,
            "tokens": self.tokens,
            "question": self.result.question,
            "memory": self.result.memory,
        }


class Reader:
    """Reads documents.

    Args:
        model: the model that reads.
        settings: settings of the endpoint.
        store: where runs are kept.
    """

    def __init__(self, model: ChatModel, settings: Settings, store: RunStore) -> None:
        self._model, self._store = model, store
        self._reading = dict(settings.reading)
        if settings.window is not None:
            self._reading.setdefault("window", min(settings.window, 8192))
        self._locks = WeakValueDictionary[str, asyncio.Lock]()

    async def read(
        self, message: LongMessage, asked: ReadingRequest, progress: Progress
    ) -> Reading:
        """Reads a document, or continues where an earlier request left off.

        Raises:
            MemagentError: see `MemoryAgent.aask`.
            Refusal: the run stopped without an answer.
        """
        agent = await asyncio.to_thread(self._agent, asked, await self._model.window())
        prefix, plan = f"{RUN_PREFIX}-{asked.owner}", await agent.plan((message.question,))
        # With another window or counter a run can't be continued, so it needs another id.
        key = f"{message.question}\n{plan.window} {plan.counter.name}"
        run_id = await asyncio.to_thread(name_run, agent, message.document, key, prefix)
        lock = self._locks.setdefault(run_id, asyncio.Lock())
        if lock.locked():
            progress(f"run {run_id} is at work for another request")
        async with lock:
            return await self._finish(agent, message, run_id, progress)

    def _agent(self, asked: ReadingRequest, window: int | None) -> MemoryAgent:
        settings = dict(self._reading)
        # The smaller of the two counts, see `Engine`.
        if window is not None and "window" in settings:
            settings["window"] = min(settings["window"], window)
        if heat := asked.model_dump(include={"temperature", "top_p"}, exclude_none=True):
            base: Sampling = settings.get("sampling") or Sampling()
            settings["sampling"] = Sampling(**base.model_dump() | heat)
        settings |= asked.model_dump(include={"seed"}, exclude_none=True)
        return MemoryAgent(self._model, store=self._store, **settings)

    async def _finish(
        self, agent: MemoryAgent, message: LongMessage, run_id: str, progress: Progress
    ) -> Reading:
        # A tuple, because a one-line `str` that happens to name a file causes a warning.
        document = open_document((message.document,), name="document of a request")
        old_usage = await asyncio.to_thread(self._store.usage, run_id)
        tokens = 0
        async with aclosing(agent.stream(document, message.question, run_id=run_id)) as events:
            async for event in events:
                if event.type == "chunk_read":
                    tokens += event.tokens
                    progress(f"run {run_id}: chunk {event.chunk + 1}, {plural(tokens, 'token')}")
            result = events.result
        if result.answer is None:
            # Not a 429, which clients retry automatically: that can't help if a limit is reached.
            is_limit = result.stop_reason == "limit"
            hint = "" if is_limit else f". Run {run_id} can be resumed: send the request again"
            raise Refusal(
                403 if is_limit else 502,
                f"the reading stopped: {result.detail}{hint}",
                code=result.stop_reason.value,
                headers={"X-Memagent-Run": run_id},
            )
        return Reading(result, tokens, result.usage - old_usage)
