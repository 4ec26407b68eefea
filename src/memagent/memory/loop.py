"""The loop: read chunk after chunk, let the model rewrite the memory, then answer from it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import aclosing
from dataclasses import asdict, fields
from functools import partial
from itertools import compress, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from memagent.chunking import Chunk, ResumePoint, chunks
from memagent.chunking.chunker import CHANGED
from memagent.documents import Document, Source, open_document
from memagent.errors import ConfigError, DocumentRequired, RunMismatch
from memagent.events import ChunkRead, Event, Neutralised, RunStarted
from memagent.memory.ahead import Pace, sent_ahead
from memagent.memory.calls import Calls
from memagent.memory.plan import MemoryPlan
from memagent.memory.state import State, needs_more, read_results, restore
from memagent.messages import Usage
from memagent.run.caller import Caller
from memagent.run.log import Log
from memagent.run.result import Result
from memagent.run.stream import EventStream
from memagent.run.sync import prefetch, together
from memagent.runstore import RunRecord
from memagent.threads import in_thread
from memagent.trajectory import StopReason

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent

_NEXT = attrgetter("next_chunk")


class MemoryLoop(Calls):
    """One run over one document, for one or more questions; no document if the run needs no more of it."""

    agent: ClassVar[str] = "memory"

    def __init__(
        self, host: MemoryAgent, questions: tuple[str, ...], document: Source | None
    ) -> None:
        if host.model.name == "extractive" and host.prompts.name in ("summary", "rows"):
            fact = "the model 'extractive' only picks sentences that share words with a question"
            raise ConfigError(f"{fact}; for summaries and rows name a language model ('vllm:NAME')")
        self.host = host
        self.source = {"name": "", "path": None}
        self._make_plan, self._given = partial(host.plan, questions), document
        self._shown_questions = questions
        self._document: Document | None = None
        read_ahead = host.settings.read_ahead
        self._pace = None if read_ahead == 1 else Pace(read_ahead, host.concurrency)
        self._keeping = asyncio.Lock()
        self._limit = None

    async def prepare(self, known: RunRecord | None) -> MemoryPlan:
        """See `Loop.prepare`."""
        if self._given is not None:
            document = self._document = await in_thread(open_document, self._given)
            path = document.path if document.rereadable else None
            self.source = {"name": document.name, "path": path, "options": document.options}
        self._reopens = self.source if known is None else known.source
        plan = self.plan = await self._make_plan(known)
        self._started = partial(
            RunStarted,
            model=plan.model.name,
            document=self.source["name"],
            questions=self._shown_questions,
            counter=plan.counter.name,
            window=plan.budget.window,
            chunk_tokens=plan.budget.chunk,
            memory_tokens=plan.budget.memory,
        )
        return plan

    async def run(self, log: Log, caller: Caller, *, fresh: bool) -> list[Result]:
        """See `Loop.run`. Raises a `RunMismatch` if the document isn't the one that the run began with."""
        self._log, self._caller, plan = log, caller, self.plan
        last_chunk = await in_thread(log.store.latest, log.run_id, "chunk")
        if last_chunk is None and self._document is not None and self._reopens != self.source:
            # The run was stopped before anything was read: from now on, this is its document.
            await in_thread(log.store.set_source, log.run_id, self.source)
            self._reopens, fresh = self.source, True
        if fresh:
            await log.add(self._started(run_id=log.run_id))
        self._states = await in_thread(restore, log.store, log.run_id, len(plan.questions))
        self._last: dict[str, Any] | None = None if last_chunk is None else last_chunk[1]["mark"]
        known = self.source | {"name": self._reopens["name"]}
        self._moved = log.held and self.source["path"] is not None and self._reopens != known
        await self._read()
        if self._moved:
            await self._keep_source()
        if self._limit is None:
            await self._conclude(list(filter(State.waits, self._states)))
        if self._limit is not None:
            await self._stop_at_limit(self._limit)
        arguments = (log.store, log.run_id, plan.questions, self._states, self.host.limits)
        return await in_thread(read_results, *arguments, self._reopens | {"mark": self._last})

    # --- reading

    async def _read(self) -> None:
        """Shows the chunks to the questions that need them."""
        next_chunks = list(map(_NEXT, filter(partial(needs_more, self._last), self._states)))
        if self._document is None:
            if next_chunks:
                raise DocumentRequired(
                    f"run {self._log.run_id!r} needs its document again: it came from no file that can "
                    f"be reopened; pass it (document=..., or --document FILE)"
                )
            return
        furthest = -1 if self._last is None else self._last["chunk"]
        resume = None
        if (first := min(next_chunks, default=furthest + 1)) > 0:
            mark = await self._mark(first - 1)
            resume = ResumePoint(**{field.name: mark[field.name] for field in fields(ResumePoint)})
        stream = chunks(self._document, self.plan.chunker(resume), run=self.plan.counting)
        buffer = deque[tuple[Chunk, dict[str, Any]]]()
        async with aclosing(prefetch(stream)) as chunk_stream:
            async for chunk in chunk_stream:
                place = {"chunk": chunk.index, "start": chunk.start, "last": chunk.last}
                mark = asdict(ResumePoint.after(chunk)) | place
                if chunk.index <= furthest:
                    # Earlier versions recorded more.
                    same = mark.items() <= (await self._mark(chunk.index)).items()
                else:
                    same = self._last is None or not self._last["last"]
                if not same:
                    raise RunMismatch(CHANGED.format(f"it differs before character {chunk.end:,}"))
                if self._moved and chunk.index >= furthest:
                    await self._keep_source()
                buffer.append((chunk, mark))
                while states := list(filter(partial(needs_more, self._last), self._states)):
                    first = min(map(_NEXT, states))
                    while buffer and buffer[0][0].index < first:
                        buffer.popleft()
                    size = 1 if self._pace is None else self._pace.size(len(self._states))
                    if not buffer or (len(buffer) < size and not chunk.last):
                        break
                    if self._pace is None:
                        askers = compress(states, map(first.__eq__, map(_NEXT, states)))
                        await self._keep(chunk, mark)
                        await self._ask(*map(partial(self._update, chunk), askers))
                    else:
                        batch = list(islice(buffer, size))
                        await together(self._look_ahead(s, batch, self._pace) for s in states)
                    if self._limit is not None:
                        return
                if not states:
                    return

    async def _keep_source(self) -> None:
        """Stores where the document is now and how to decode it: as far as the run got, its text is unchanged."""
        await in_thread(self._log.store.set_source, self._log.run_id, self.source)
        self._reopens, self._moved = self.source, False

    async def _look_ahead(
        self, state: State, batch: list[tuple[Chunk, dict[str, Any]]], pace: Pace
    ) -> None:
        """Sends a question's next chunks at once, and takes the replies that reading in order would have given."""
        memory, first = state.memory, state.next_chunk
        window = [(chunk, mark) for chunk, mark in batch if chunk.index >= first]
        exchanges, take_count = [self._update(chunk, state) for chunk, _ in window], 0
        start, seconds = time.monotonic(), list[float]()
        async with sent_ahead(exchanges, self._ask) as take:
            for place, (chunk, mark) in enumerate(window):
                await self._keep(chunk, mark)
                take_count += 1
                await take(place)
                unchanged = state.memory == memory and state.next_chunk == chunk.index + 1
                if not unchanged or not needs_more(self._last, state):
                    break
                seconds.append(time.monotonic() - start)
        for exchange in exchanges[take_count:]:
            await self._caller.discard(exchange)
        pace.note(len(window), take_count, int(state.memory != memory), seconds)

    async def _mark(self, chunk: int) -> dict[str, Any]:
        """Returns the position of a chunk that was read: enough to continue after it and to recognise it."""
        body = await self._log.effect(f"chunk-{chunk}")
        assert body is not None, "an update is committed after its chunk"
        return body["mark"]

    async def _keep(self, chunk: Chunk, mark: dict[str, Any]) -> None:
        """Commits a chunk, unless that was done before."""
        async with self._keeping:
            if self._last is not None and chunk.index <= self._last["chunk"]:
                return
            places = getattr(self._document, "places", None)  # not all documents have them
            event = ChunkRead(
                chunk=chunk.index,
                start=chunk.start,
                end=chunk.end,
                tokens=chunk.tokens,
                last=chunk.last,
                place="" if places is None else places.find(chunk.start, chunk.end),
            )
            events: list[Event] = [event]
            if chunk.neutralised:
                events.append(Neutralised(chunk=chunk.index, count=chunk.neutralised))
            body = {"mark": mark, "text": chunk.text}
            if event.place:
                body["place"] = event.place
            await self._log.commit(f"chunk-{chunk.index}", body, events=events)
            self._last = mark

    async def _stop_at_limit(self, detail: str) -> None:
        """Stops the unfinished questions; with `Limits.answer`, answers them from the memories so far."""
        for state in filter(State.waits, self._states):
            await self._stop(state, StopReason.LIMIT, detail, Usage())
        limits = self.host.limits
        if limits is not None and limits.answer:
            limited_states = [s for s in self._states if s.stopped is StopReason.LIMIT and s.memory]
            await self._conclude(limited_states, so_far=True)


class RunStream(EventStream[list[Result]]):
    """One reading as an async iterator of events; `results` is available at its end."""

    @property
    def results(self) -> list[Result]:
        """One result per question, in order. Raises like `outcome`."""
        return self.outcome

    @property
    def result(self) -> Result:
        """The first result; with one question, the only one."""
        return self.results[0]
