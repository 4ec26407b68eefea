"""The loop: read chunk after chunk, let the model rewrite the memory, then answer from it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, fields
from typing import Any, TypeVar

from memagent.agents.calls import Call, Caller, Reply, Unusable, bound_memory
from memagent.agents.plan import Plan
from memagent.chunking import Chunk, ResumePoint, chunks
from memagent.documents import Document
from memagent.errors import DocumentRequired, LimitReached, ModelError, RunMismatch
from memagent.events import (
    Answered,
    ChunkRead,
    Event,
    MemoryKept,
    MemoryTruncated,
    MemoryUpdated,
    Neutralised,
    Settled,
    Stopped,
)
from memagent.messages import CallKind, Completion, Usage
from memagent.models.base import ChatModel
from memagent.prompts import read_answer, read_update
from memagent.prompts.reply import Update
from memagent.runner import Journal, prefetch, together
from memagent.runstore import QuestionState, Step
from memagent.threads import in_thread
from memagent.trajectory import StopReason

T = TypeVar("T")


class Reading:
    """One run of one document, for one or more questions.

    Args:
        plan: what was resolved before the first call.
        model: where requests go.
        document: the source; None only where everything needed from it was read before.
        journal: the run that this reading commits to.
    """

    def __init__(
        self, plan: Plan, model: ChatModel, document: Document | None, journal: Journal
    ) -> None:
        self.plan, self.document, self.journal = plan, document, journal
        self._caller = Caller(plan, model)
        self.stopped: dict[int, tuple[StopReason, str]] = {}
        """Why questions stopped without an answer in this session, with a sentence of detail."""
        self._limit: str | None = None
        self._states: list[QuestionState] = []
        self._last_mark: dict[str, Any] | None = None

    async def events(self, started: Event) -> AsyncGenerator[Event]:
        """Runs to the end: the committed events first, verbatim, then the new ones as they are committed.

        Args:
            started: the event that opens a new run's log.

        Raises:
            ModelError: a call failed for good; the run stays resumable.
            DocumentError: the source cannot be read.
            RunMismatch: the document is not the one that the run began with.
            StoreError: a step could not be committed.
        """
        store, run_id = self.journal.store, self.journal.run_id
        replayed = False
        async with aclosing(self.journal.replay()) as committed:
            async for event in committed:
                replayed = True
                yield event
        if not replayed:
            for event in await in_thread(store.log, run_id, [started]):
                yield event
        self._states = await in_thread(store.state, run_id, len(self.plan.questions))
        self._last_mark = await in_thread(store.last_mark, run_id)
        async with aclosing(self._read()) as news:
            async for event in news:
                yield event
        waiting = [s for s in self._states if s.answer is None and s.question not in self.stopped]
        if waiting and self._limit is None:
            _, calls = await self.plan.counting(self._prepare, "answer", waiting, None, new=False)
            async with aclosing(together(self._answer(call) for call in calls)) as steps:
                async for events in steps:
                    for event in events:
                        yield event
        if self._limit is not None:
            for event in await self._stop_at_limit(self._limit):
                yield event

    # --- reading

    async def _read(self) -> AsyncGenerator[Event]:
        unread = [s.next_chunk for s in self._states if self._reads(s)]
        if self.document is None:
            if unread:
                raise DocumentRequired(
                    f"run {self.journal.run_id!r} needs its document again: it came from no file that can "
                    f"be opened; hand it in (document=..., or --document FILE)"
                )
            return
        furthest = -1 if self._last_mark is None else self._last_mark["chunk"]
        first = min(unread, default=furthest + 1)
        resume = None
        if first > 0:
            mark = (
                self._last_mark
                if first > furthest
                else await in_thread(self.journal.store.mark, self.journal.run_id, first - 1)
            )
            assert mark is not None, "a step is committed after its chunk"
            resume = _behind(mark)
        stream = chunks(self.document, self.plan.chunker(resume), run=self.plan.counting)
        async with aclosing(prefetch(stream)) as upcoming:
            async for chunk in upcoming:
                await self._check(chunk, furthest)
                active = [s for s in self._states if self._reads(s)]
                now = [s for s in active if s.next_chunk == chunk.index]
                if not active:
                    return
                if not now:
                    continue
                async with aclosing(self._show(chunk, now, new=chunk.index > furthest)) as events:
                    async for event in events:
                        yield event
                if self._limit is not None:
                    return

    def _reads(self, state: QuestionState) -> bool:
        if state.answer is not None or state.settled or state.question in self.stopped:
            return False
        mark = self._last_mark
        return mark is None or not mark["last"] or state.next_chunk <= mark["chunk"]

    async def _check(self, chunk: Chunk, furthest: int) -> None:
        """Compares a chunk with what an earlier session saw at its place."""
        if chunk.index <= furthest:
            same = await in_thread(
                self.journal.store.mark, self.journal.run_id, chunk.index
            ) == _mark(chunk)
        else:
            same = self._last_mark is None or not self._last_mark["last"]
        if not same:
            raise RunMismatch(
                f"run {self.journal.run_id!r} began with another document: this one differs at or before "
                f"character {chunk.end}; hand in the same text, or use another --run-id"
            )

    async def _show(
        self, chunk: Chunk, states: list[QuestionState], *, new: bool
    ) -> AsyncGenerator[Event]:
        """Commits that the chunk is about to be shown, then each question's step as it comes."""
        events, calls = await self.plan.counting(self._prepare, "update", states, chunk, new=new)
        if new:
            self._last_mark = _mark(chunk)
        for event in events:
            yield event
        async with aclosing(together(self._update(call, chunk) for call in calls)) as steps:
            async for events in steps:
                for event in events:
                    yield event

    def _prepare(
        self, kind: CallKind, states: list[QuestionState], chunk: Chunk | None, *, new: bool
    ) -> tuple[list[Event], list[Call]]:
        """Renders and counts the prompts, and commits that they are about to be sent. Blocks."""
        text = "" if chunk is None else chunk.text
        prompts = [
            self.plan.render(kind, self.plan.questions[s.question], s.memory, text) for s in states
        ]
        rooms = [self._caller.room(messages) for messages in prompts]
        events, pending = self.journal.store.begin(
            self.journal.run_id,
            None if chunk is None else chunk.index,
            [state.question for state in states],
            mark=_mark(chunk) if chunk is not None and new else None,
            text=text,
            events=_read_events(chunk) if chunk is not None and new else [],
        )
        calls = [
            Call(kind, state, chunk, messages, room, Usage(repeated=before.sent), before.unusable)
            for state, messages, room, before in zip(states, prompts, rooms, pending, strict=True)
        ]
        return events, calls

    async def _update(self, call: Call, chunk: Chunk) -> list[Event]:
        """One update call, committed."""
        prompts, gate = self.plan.prompts, self.plan.settings.gate
        reply = await self._ask(call, lambda reply: read_update(reply, prompts, gate))
        if not isinstance(reply, Reply):
            return reply
        step, events = await self.plan.counting(self._settle, call, chunk, reply)
        call.state.next_chunk = chunk.index + 1
        call.state.settled = step.settled
        call.state.memory = call.state.memory if step.memory is None else step.memory
        return events

    def _settle(self, call: Call, chunk: Chunk, reply: Reply[Update]) -> tuple[Step, list[Event]]:
        """Bounds the new memory and commits it. Blocks."""
        question, update = call.state.question, reply.parsed
        events, memory, tokens = call.retried, None, None
        if update.memory is None:
            events.append(MemoryKept(question=question, chunk=chunk.index, usage=call.usage))
        else:
            memory, tokens, before = bound_memory(update.memory, self.plan, cut_off=update.cut_off)
            if tokens < before:
                events.append(
                    MemoryTruncated(
                        question=question,
                        chunk=chunk.index,
                        tokens_before=before,
                        tokens_after=tokens,
                    )
                )
            events.append(
                MemoryUpdated(
                    question=question,
                    chunk=chunk.index,
                    memory=memory,
                    tokens=tokens,
                    usage=call.usage,
                )
            )
        settled = update.done and not chunk.last
        if settled:
            events.append(Settled(question=question, chunk=chunk.index))
        step = Step(
            question=question,
            chunk=chunk.index,
            conversation=reply.conversation,
            usage=call.usage,
            memory=memory,
            tokens=tokens,
            settled=settled,
        )
        return step, self.journal.store.commit(self.journal.run_id, step, events)

    async def _answer(self, call: Call) -> list[Event]:
        """One answer call, committed."""
        prompts = self.plan.prompts
        reply = await self._ask(call, lambda reply: read_answer(reply, prompts))
        if not isinstance(reply, Reply):
            return reply
        answer = reply.parsed
        step = Step(
            question=call.state.question,
            chunk=None,
            conversation=reply.conversation,
            usage=call.usage,
            answer=answer.text,
        )
        answered = Answered(
            question=call.state.question,
            answer=answer.text,
            form_found=answer.form_found,
            truncated=answer.truncated,
            usage=call.usage,
        )
        events = await in_thread(
            self.journal.store.commit, self.journal.run_id, step, [*call.retried, answered]
        )
        call.state.answer = answer.text
        return events

    async def _ask(self, call: Call, parse: Callable[[Completion], T]) -> Reply[T] | list[Event]:
        """Makes one call: its reply, or the committed events of a question that stops here."""
        try:
            return await self._caller.ask(call, parse)
        except LimitReached as limit:
            self._limit = str(limit)
            return await self._stop(call, StopReason.LIMIT, self._limit)
        except Unusable as error:
            return await self._stop(call, StopReason.UNUSABLE_REPLY, str(error))
        except ModelError:
            await self._spend(call, call.retried)
            raise

    async def _stop(self, call: Call, reason: StopReason, detail: str) -> list[Event]:
        """Stops one question; the others go on."""
        question = call.state.question
        self.stopped[question] = (reason, detail)
        stopped = Stopped(question=question, reason=reason, detail=detail, usage=call.usage)
        return await self._spend(call, [*call.retried, stopped])

    async def _spend(self, call: Call, events: Sequence[Event]) -> list[Event]:
        """Commits what a call cost that led to nothing."""
        return await in_thread(
            self.journal.store.spend,
            self.journal.run_id,
            call.state.question,
            call.place,
            call.usage,
            events,
            unusable=call.unusable,
        )

    async def _stop_at_limit(self, detail: str) -> list[Event]:
        """Stops the questions that wait for nothing but their turn."""
        reason = StopReason.LIMIT
        waiting = [s for s in self._states if s.answer is None and s.question not in self.stopped]
        self.stopped |= {state.question: (reason, detail) for state in waiting}
        stops = [
            Stopped(question=s.question, reason=reason, detail=detail, usage=Usage())
            for s in waiting
        ]
        return await in_thread(self.journal.store.log, self.journal.run_id, stops)


def _read_events(chunk: Chunk) -> list[Event]:
    read = ChunkRead(
        chunk=chunk.index,
        start=chunk.start,
        end=chunk.end,
        tokens=chunk.tokens,
        last=chunk.last,
    )
    if not chunk.neutralised:
        return [read]
    return [read, Neutralised(chunk=chunk.index, count=chunk.neutralised)]


def _behind(mark: dict[str, Any]) -> ResumePoint:
    """Where to go on behind a chunk that was read."""
    return ResumePoint(**{field.name: mark[field.name] for field in fields(ResumePoint)})


def _mark(chunk: Chunk) -> dict[str, Any]:
    """Where a chunk lies, as the store keeps it: enough to go on behind it, and to know it again."""
    place = {"chunk": chunk.index, "start": chunk.start, "last": chunk.last}
    return asdict(ResumePoint.after(chunk)) | place
