"""The loop: read chunk after chunk, let the model rewrite the memory, then answer from it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import aclosing
from dataclasses import asdict, fields, replace
from functools import partial
from itertools import compress, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from memagent.chunking import Chunk, ResumePoint, chunks
from memagent.chunking.chunker import CHANGED
from memagent.documents import Document, Source, open_document
from memagent.errors import DocumentRequired, LimitReached, RunMismatch
from memagent.events import (
    Answered,
    ChunkRead,
    Event,
    MemoryDegenerate,
    MemoryKept,
    MemoryTruncated,
    MemoryUpdated,
    Neutralised,
    RunStarted,
    Settled,
    Stopped,
)
from memagent.memory.ahead import Pace, sent_ahead
from memagent.memory.degenerate import find_problem
from memagent.memory.plan import MemoryPlan
from memagent.memory.state import State, read_results, restore
from memagent.messages import Usage
from memagent.prompts import read_answer, read_update
from memagent.prompts.reply import Answer, Update
from memagent.run.caller import Caller
from memagent.run.exchange import Exchange, Record, Reply, Unusable
from memagent.run.log import Log
from memagent.run.result import Result
from memagent.run.stream import Loop
from memagent.run.sync import prefetch, together
from memagent.runstore import RunRecord
from memagent.runstore.conversations import without_text
from memagent.threads import in_thread
from memagent.trajectory import StopReason

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent

_NEXT = attrgetter("next_chunk")


class MemoryLoop(Loop[list[Result]]):
    """One run over one document, for one or more questions; no document if the run needs no more of it."""

    agent: ClassVar[str] = "memory"

    def __init__(
        self, host: MemoryAgent, questions: tuple[str, ...], document: Source | None
    ) -> None:
        self.host = host
        self.source = {"name": "", "path": None}
        self._make_plan, self._given = partial(host.plan, questions), document
        self._document: Document | None = None
        ahead = host.settings.read_ahead
        self._pace = None if ahead == 1 else Pace(ahead, host.concurrency)
        self._keeping = asyncio.Lock()
        self._limit: str | None = None
        """The usage limit reached."""

    async def prepare(self, known: RunRecord | None) -> MemoryPlan:
        """See `Loop.prepare`."""
        if self._given is not None:
            document = self._document = await in_thread(open_document, self._given)
            path = document.path if document.rereadable else None
            self.source = {"name": document.name, "path": path, "options": document.options}
        self._reopens = self.source if known is None else known.source
        window = None if known is None else known.binding["budget"]["window"]
        plan = self.plan = await self._make_plan(window)
        self._started = partial(
            RunStarted,
            model=plan.model,
            document=self.source["name"],
            questions=plan.questions,
            counter=plan.counter.name,
            window=plan.budget.window,
            chunk_tokens=plan.budget.chunk,
            memory_tokens=plan.budget.memory,
        )
        return plan

    async def run(self, log: Log, caller: Caller, *, fresh: bool) -> list[Result]:
        """See `Loop.run`. Raises a `RunMismatch` if the document isn't the one that the run began with."""
        self._log, self._caller, plan = log, caller, self.plan
        if fresh:
            await log.add(self._started(run_id=log.run_id))
        self._states = await in_thread(restore, log.store, log.run_id, len(plan.questions))
        found = await in_thread(log.store.latest, log.run_id, "chunk")
        self._last: dict[str, Any] | None = None if found is None else found[1]["mark"]
        await self._read()
        if self._limit is None:
            await self._conclude(list(filter(State.waits, self._states)))
        if self._limit is not None:
            await self._stop_at_limit(self._limit)
        given = (log.store, log.run_id, plan.questions, self._states, self.host.limits)
        return await in_thread(read_results, *given, self._reopens)

    # --- reading

    async def _read(self) -> None:
        """Shows the chunks to the questions that need them."""
        unread = list(map(_NEXT, filter(self._reads, self._states)))
        if self._document is None:
            if unread:
                raise DocumentRequired(
                    f"run {self._log.run_id!r} needs its document again: it came from no file that can "
                    f"be reopened; pass it (document=..., or --document FILE)"
                )
            return
        furthest = -1 if self._last is None else self._last["chunk"]
        resume = None
        if (first := min(unread, default=furthest + 1)) > 0:
            mark = await self._mark(first - 1)
            resume = ResumePoint(**{field.name: mark[field.name] for field in fields(ResumePoint)})
        stream = chunks(self._document, self.plan.chunker(resume), run=self.plan.counting)
        ahead = deque[tuple[Chunk, dict[str, Any]]]()
        async with aclosing(prefetch(stream)) as upcoming:
            async for chunk in upcoming:
                place = {"chunk": chunk.index, "start": chunk.start, "last": chunk.last}
                mark = asdict(ResumePoint.after(chunk)) | place
                if chunk.index <= furthest:
                    # Earlier versions recorded more.
                    same = mark.items() <= (await self._mark(chunk.index)).items()
                else:
                    same = self._last is None or not self._last["last"]
                if not same:
                    raise RunMismatch(
                        CHANGED.format(f"it differs at or before character {chunk.end:,}")
                    )
                ahead.append((chunk, mark))
                while active := list(filter(self._reads, self._states)):
                    first = min(map(_NEXT, active))
                    while ahead and ahead[0][0].index < first:
                        ahead.popleft()
                    size = 1 if self._pace is None else self._pace.size(len(active))
                    if not ahead or (len(ahead) < size and not chunk.last):
                        break
                    if self._pace is None:
                        askers = compress(active, map(first.__eq__, map(_NEXT, active)))
                        await self._keep(chunk, mark)
                        await self._ask(*map(partial(self._update, chunk), askers))
                    else:
                        shown = list(islice(ahead, size))
                        await together(
                            [self._look_ahead(state, shown, self._pace) for state in active]
                        )
                    if self._limit is not None:
                        return
                if not active:
                    return

    async def _look_ahead(
        self, state: State, shown: list[tuple[Chunk, dict[str, Any]]], pace: Pace
    ) -> None:
        """Sends a question's next chunks at once, and takes the replies that reading in order would have brought."""
        memory, first = state.memory, state.next_chunk
        window = [(chunk, mark) for chunk, mark in shown if chunk.index >= first]
        exchanges, taken = [self._update(chunk, state) for chunk, _ in window], 0
        start, seconds = time.monotonic(), list[float]()
        async with sent_ahead(exchanges, self._ask) as replies:
            for (chunk, mark), take in zip(window, replies, strict=True):
                await self._keep(chunk, mark)
                taken += 1
                await take()
                still = state.memory == memory and state.next_chunk == chunk.index + 1
                if not still or not self._reads(state):
                    break
                seconds.append(time.monotonic() - start)
        for exchange in exchanges[taken:]:
            await self._caller.discard(exchange)
        pace.note(len(window), taken, int(state.memory != memory), seconds)

    def _reads(self, state: State) -> bool:
        if not state.waits() or state.settled:
            return False
        last = self._last
        return last is None or not last["last"] or state.next_chunk <= last["chunk"]

    async def _mark(self, chunk: int) -> dict[str, Any]:
        """The position of a chunk that was read: enough to continue after it and to recognise it."""
        body = await self._log.effect(f"chunk-{chunk}")
        assert body is not None, "an update is committed after its chunk"
        return body["mark"]

    async def _keep(self, chunk: Chunk, mark: dict[str, Any]) -> None:
        """Commits a chunk that nobody has seen yet."""
        async with self._keeping:
            if self._last is not None and chunk.index <= self._last["chunk"]:
                return
            places = getattr(self._document, "places", None)  # not all documents have them
            read = ChunkRead(
                chunk=chunk.index,
                start=chunk.start,
                end=chunk.end,
                tokens=chunk.tokens,
                last=chunk.last,
                place="" if places is None else places.find(chunk.start, chunk.end),
            )
            events: list[Event] = [read]
            if chunk.neutralised:
                events.append(Neutralised(chunk=chunk.index, count=chunk.neutralised))
            body = {"mark": mark, "text": chunk.text}
            if read.place:
                body["place"] = read.place
            await self._log.commit(f"chunk-{chunk.index}", body, events=events)
            self._last = mark

    # --- calls

    def _update(self, chunk: Chunk, state: State) -> Exchange[Update]:
        """Shows a chunk to one question: its memory is rewritten, or kept."""
        plan, question = self.plan, state.question
        return Exchange(
            key=f"update-{chunk.index}/q{question}",
            kind="update",
            messages=plan.render("update", question, state.memory, chunk.text),
            read=partial(read_update, prompts=plan.prompts, gate=plan.settings.gate),
            stop=plan.prompts.stop.update,
            most=plan.budget.output,
            bound=plan.bound("update", question, state.tokens, chunk.tokens),
            parts=plan.parts(question, state.memory, chunk.text),
            doubts=partial(find_problem, plan.settings.degenerate, state.memory, chunk),
            record=partial(self._record_update, state, chunk),
            question=question,
            chunk=chunk.index,
        )

    def _record_update(self, state: State, chunk: Chunk, reply: Reply[Update]) -> Record:
        """Bounds the new memory. Blocks."""
        update, events = reply.value, list[Event]()
        where: dict[str, Any] = {"question": state.question, "chunk": chunk.index}
        told = reply.conversation(chunk.index)
        body: dict[str, Any] = {"conversation": told.model_dump(mode="json", exclude_defaults=True)}
        if reply.doubt is not None:
            kept = self.plan.settings.degenerate == "keep"
            events.append(MemoryDegenerate(**where, problem=reply.doubt, kept=kept))
            update = replace(update, memory=None) if kept else update
        if update.memory is None:
            events.append(MemoryKept(**where, usage=reply.usage))
        else:
            memory, tokens, before = self.plan.bound_memory(update.memory, cut_off=update.cut_off)
            body |= {"memory": memory, "tokens": tokens}
            state.memory, state.tokens, state.carried = memory, tokens, chunk.index
            if tokens < before:
                cut = MemoryTruncated(**where, tokens_before=before, tokens_after=tokens)
                events.append(cut)
            updated = MemoryUpdated(**where, memory=memory, tokens=tokens, usage=reply.usage)
            events.append(updated)
        if state.carried is not None:
            body["carried"] = state.carried
        if update.done and not chunk.last:
            state.settled = body["settled"] = True
            events.append(Settled(**where))
        state.next_chunk = chunk.index + 1
        return without_text(body, chunk.text), events

    def _answer(self, state: State, *, so_far: bool = False) -> Exchange[Answer]:
        """Asks for the answer from the memory, of the whole document or of what was read so far."""
        plan, question = self.plan, state.question
        place = f"partial-{state.next_chunk}" if so_far else "answer"
        return Exchange(
            key=f"{place}/q{question}",
            kind="answer",
            messages=plan.render("answer", question, state.memory),
            read=partial(read_answer, prompts=plan.prompts),
            stop=plan.prompts.stop.answer,
            most=plan.budget.output,
            bound=plan.bound("answer", question, state.tokens),
            parts=plan.parts(question, state.memory),
            doubts=partial(find_problem, plan.settings.degenerate, "", None),
            record=partial(self._record_answer, state, so_far),
            question=question,
        )

    def _record_answer(self, state: State, so_far: bool, reply: Reply[Answer]) -> Record:
        answer = reply.value
        facts: dict[str, Any] = {
            "answer": answer.text,
            "truncated": answer.truncated,
            "form_found": answer.form_found,
        }
        answered = Answered(question=state.question, partial=so_far, usage=reply.usage, **facts)
        conversation = reply.conversation().model_dump(mode="json", exclude_defaults=True)
        return facts | {"conversation": conversation}, [answered]

    async def _ask(self, *exchanges: Exchange[Any], caller: Caller | None = None) -> None:
        """Runs one exchange per question, concurrently; a failure stops only its question."""
        if len(exchanges) != 1:
            await together(self._ask(exchange, caller=caller) for exchange in exchanges)
            return
        (exchange,) = exchanges
        state = self._states[exchange.question]
        try:
            said = (await (caller or self._caller).ask(exchange)).value
            if isinstance(said, Answer):  # a partial one may be from an earlier session
                state.answer, state.truncated = said.text, said.truncated
                state.partial = state.stopped is not None
        except LimitReached as limit:
            if exchange.turn is not None:
                await exchange.turn
            self._limit = str(limit)
            await self._stop(state, StopReason.LIMIT, self._limit, exchange.usage)
        except Unusable as error:
            if exchange.turn is not None:
                await exchange.turn
            where = "the answer call" if exchange.chunk is None else f"chunk {exchange.chunk}"
            await self._stop(state, StopReason.UNUSABLE_REPLY, f"{where}: {error}", exchange.usage)

    # --- ends

    async def _conclude(self, states: list[State], *, so_far: bool = False) -> None:
        """Answers questions, from the whole document or from what was read so far."""
        caller = self._caller.over(self.host.model) if so_far else None
        await self._ask(*map(partial(self._answer, so_far=so_far), states), caller=caller)

    async def _stop(self, state: State, reason: StopReason, detail: str, usage: Usage) -> None:
        state.stopped, state.detail = reason, detail
        stopped = Stopped(question=state.question, reason=reason, detail=detail, usage=usage)
        await self._log.add_stop(stopped, among=len(self._states))

    async def _stop_at_limit(self, detail: str) -> None:
        """Stops the unfinished questions; with `Limits.answer`, answers them from the memories so far."""
        for state in filter(State.waits, self._states):
            await self._stop(state, StopReason.LIMIT, detail, Usage())
        limits = self.host.limits
        if limits is not None and limits.answer:
            limited = [s for s in self._states if s.stopped is StopReason.LIMIT and s.memory]
            await self._conclude(limited, so_far=True)
