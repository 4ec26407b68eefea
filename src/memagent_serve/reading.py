"""Documents of requests, read through a memory: one resumable run for each document, question and caller."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from memagent import MemoryAgent, Result, RunStore, Sampling, Usage, open_document
from memagent.memory.corpus import name_run
from memagent.models import ChatModel
from memagent.texts import plural
from memagent_serve.long_messages import LongMessage
from memagent_serve.refusals import Refusal
from memagent_serve.settings import Settings
from memagent_serve.wire import Progress


@dataclass(frozen=True)
class Asked:
    """What a request says about how to read."""

    owner: str
    """Whose request it is: others' runs are not shared."""
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None

    @classmethod
    def of(cls, fields: dict[str, Any], owner: str) -> Asked:
        """What the fields of a request say; a `Refusal` if the seed isn't an integer."""
        seed = fields.get("seed")
        if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
            raise Refusal(400, f"seed={seed!r:.80} is not an integer", param="seed")
        return cls(owner, fields.get("temperature"), fields.get("top_p"), seed)


@dataclass(frozen=True)
class Reading:
    """A document that was read."""

    result: Result
    tokens: int
    """Of its chunks."""
    paid: Usage
    """By this request: nothing if the run was finished before."""

    def report(self) -> dict[str, Any]:
        """What was read, for the response."""
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
        model: reads.
        settings: of the endpoint.
        store: where runs are kept.
    """

    def __init__(self, model: ChatModel, settings: Settings, store: RunStore) -> None:
        self._model, self._store = model, store
        self._reading = dict(settings.reading)
        if settings.window is not None:
            self._reading.setdefault("window", min(settings.window, 8192))
        self._locks = WeakValueDictionary[str, asyncio.Lock]()

    async def read(self, message: LongMessage, asked: Asked, progress: Progress) -> Reading:
        """Reads a document, or continues where an earlier request left off.

        Raises:
            MemagentError: what `MemoryAgent.aask` raises.
            Refusal: the run stopped without an answer.
        """
        agent = await asyncio.to_thread(self._agent, asked)
        prefix, plan = f"serve-{asked.owner}", await agent.plan((message.question,))
        # In another window, or counted otherwise, a run can't be continued: it is another one.
        what = f"{message.question}\n{plan.window} {plan.counter.name}"
        run_id = await asyncio.to_thread(name_run, agent, message.document, what, prefix)
        lock = self._locks.setdefault(run_id, asyncio.Lock())
        if lock.locked():
            progress(f"run {run_id} is at work for another request")
        async with lock:
            return await self._finish(agent, message, run_id, progress)

    def _agent(self, asked: Asked) -> MemoryAgent:
        given = dict(self._reading)
        heat = {"temperature": asked.temperature, "top_p": asked.top_p}
        heat = {name: value for name, value in heat.items() if value is not None}
        if heat:
            base: Sampling = given.get("sampling") or Sampling()
            given["sampling"] = Sampling(**{**base.model_dump(), **heat})
        if asked.seed is not None:
            given["seed"] = asked.seed
        return MemoryAgent(self._model, store=self._store, **given)

    async def _finish(
        self, agent: MemoryAgent, message: LongMessage, run_id: str, progress: Progress
    ) -> Reading:
        # A tuple, because a `str` of one line is warned about if it happens to name a file.
        document = open_document((message.document,), name="document of a request")
        before = await asyncio.to_thread(self._store.usage, run_id)
        tokens = 0
        async with aclosing(agent.stream(document, message.question, run_id=run_id)) as events:
            async for event in events:
                if event.type == "chunk_read":
                    tokens += event.tokens
                    progress(f"run {run_id}: chunk {event.chunk + 1}, {plural(tokens, 'token')}")
            result = events.result
        if result.answer is None:
            # Not a 429, which clients repeat by themselves: that can't help where a limit is reached.
            limited = result.stop_reason == "limit"
            again = "" if limited else f". Run {run_id} can be resumed: send the request again"
            raise Refusal(
                403 if limited else 502,
                f"the reading stopped: {result.detail}{again}",
                code=result.stop_reason.value,
                headers={"X-Memagent-Run": run_id},
            )
        paid = {name: spent - getattr(before, name) for name, spent in result.usage}
        return Reading(result, tokens, Usage(**paid))
