"""The loop: read chunk after chunk, let the model rewrite the memory, then answer from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, fields
from functools import partial
from typing import Any, ClassVar

from memagent.chunking import Chunk, ResumePoint, chunks
from memagent.documents import Document, Source, open_document
from memagent.errors import DocumentRequired, LimitReached, RunMismatch
from memagent.events import (
    Answered,
    ChunkRead,
    Event,
    MemoryKept,
    MemoryTruncated,
    MemoryUpdated,
    Neutralised,
    RunStarted,
    Settled,
    Stopped,
)
from memagent.memory.plan import MemoryPlan
from memagent.memory.state import State, read_results, restore
from memagent.messages import Usage
from memagent.prompts import read_answer, read_update
from memagent.prompts.reply import Answer, Update
from memagent.run.agent import Agent
from memagent.run.caller import Caller
from memagent.run.exchange import Exchange, Record, Reply, Unusable
from memagent.run.log import Log
from memagent.run.result import Result
from memagent.run.stream import Loop
from memagent.run.sync import prefetch, together
from memagent.runstore import RunRecord
from memagent.threads import in_thread
from memagent.trajectory import StopReason

Prepare = Callable[[int | None], Awaitable[MemoryPlan]]
"""Makes the plan, with the window of the run that is resumed."""


class MemoryLoop(Loop[list[Result]]):
    """One run over one document, for one or more questions.

    Args:
        host: the agent.
        prepare: makes the plan.
        document: the source; None for a run that needs nothing more of its document.
    """

    agent: ClassVar[str] = "memory"

    def __init__(self, host: Agent, prepare: Prepare, document: Source | None) -> None:
        self.host = host
        self.source = {"name": "", "path": None}
        self._prepare, self._given = prepare, document
        self._limit: str | None = None
        """The usage limit that was reached."""

    async def prepare(self, known: RunRecord | None) -> MemoryPlan:
        """See `Loop.prepare`."""
        self._document: Document | None = None
        if self._given is not None:
            document = self._document = await in_thread(open_document, self._given)
            path = document.path if document.rereadable else None
            self.source = {"name": document.name, "path": path, "options": document.options}
        window = None if known is None else known.binding["budget"]["window"]
        self.plan = await self._prepare(window)
        return self.plan

    async def run(self, log: Log, caller: Caller, *, fresh: bool) -> list[Result]:
        """See `Loop.run`.

        Raises:
            DocumentError: the source cannot be read.
            RunMismatch: the document is not the one that the run began with.
        """
        self._log, self._caller, plan = log, caller, self.plan
        if fresh:
            started = RunStarted(
                run_id=log.run_id,
                model=plan.model,
                document=self.source["name"],
                questions=plan.questions,
                counter=plan.counter.name,
                window=plan.budget.window,
                chunk_tokens=plan.budget.chunk,
                memory_tokens=plan.budget.memory,
            )
            await log.add(started)
        self._states = await in_thread(restore, log.store, log.run_id, len(plan.questions))
        found = await log.latest("chunk")
        self._last: dict[str, Any] | None = None if found is None else found[1]["mark"]
        await self._read()
        waiting = [state for state in self._states if state.waits]
        if waiting and self._limit is None:
            await self._ask(*[(state, self._answer(state)) for state in waiting])
        if self._limit is not None:
            await self._stop_at_limit(self._limit)
        return await in_thread(
            read_results, log.store, log.run_id, plan.questions, self._states, self.host.limits
        )

    # --- reading

    async def _read(self) -> None:
        """Shows the chunks to the questions that want them."""
        unread = [state.next_chunk for state in self._states if self._reads(state)]
        if self._document is None:
            if unread:
                raise DocumentRequired(
                    f"run {self._log.run_id!r} needs its document again: it came from no file that can "
                    f"be opened; hand it in (document=..., or --document FILE)"
                )
            return
        furthest = -1 if self._last is None else self._last["chunk"]
        resume = None
        if (first := min(unread, default=furthest + 1)) > 0:
            resume = _behind(await self._mark(first - 1))
        stream = chunks(self._document, self.plan.chunker(resume), run=self.plan.counting)
        async with aclosing(prefetch(stream)) as upcoming:
            async for chunk in upcoming:
                await self._check(chunk, furthest)
                active = [state for state in self._states if self._reads(state)]
                if not active:
                    return
                shown = [state for state in active if state.next_chunk == chunk.index]
                if not shown:
                    continue
                if chunk.index > furthest:
                    self._last = _mark(chunk)
                    body = {"mark": self._last, "text": chunk.text}
                    await self._log.record(f"chunk-{chunk.index}", body, *_read_events(chunk))
                await self._ask(*[(state, self._update(state, chunk)) for state in shown])
                if self._limit is not None:
                    return

    def _reads(self, state: State) -> bool:
        if not state.waits or state.settled:
            return False
        last = self._last
        return last is None or not last["last"] or state.next_chunk <= last["chunk"]

    async def _mark(self, chunk: int) -> dict[str, Any]:
        """Where a chunk lies that was read."""
        if self._last is not None and self._last["chunk"] == chunk:
            return self._last
        body = await self._log.effect(f"chunk-{chunk}")
        assert body is not None, "an update is committed after its chunk"
        return body["mark"]

    async def _check(self, chunk: Chunk, furthest: int) -> None:
        """Compares a chunk with what an earlier session saw at its place."""
        if chunk.index <= furthest:
            same = await self._mark(chunk.index) == _mark(chunk)
        else:
            same = self._last is None or not self._last["last"]
        if not same:
            raise RunMismatch(
                f"run {self._log.run_id!r} began with another document: this one differs at or before "
                f"character {chunk.end}; hand in the same text, or use another --run-id"
            )

    # --- calls

    def _update(self, state: State, chunk: Chunk) -> Exchange[Update]:
        """Shows a chunk to one question: its memory is rewritten, or kept."""
        plan, question = self.plan, state.question
        gate = plan.settings.gate
        return Exchange(
            key=f"update-{chunk.index}/q{question}",
            kind="update",
            messages=plan.render("update", question, state.memory, chunk.text),
            read=partial(read_update, prompts=plan.prompts, gate=gate),
            most=plan.budget.output,
            bound=plan.bound("update", question, state.tokens, chunk.tokens),
            parts=plan.parts(question, state.memory, chunk.text),
            record=partial(self._updated, state, chunk),
            question=question,
            chunk=chunk.index,
        )

    def _updated(self, state: State, chunk: Chunk, reply: Reply[Update]) -> Record:
        """Bounds the new memory. Blocks."""
        question, update, events = state.question, reply.value, list[Event]()
        body: dict[str, Any] = {"conversation": _dump(reply, chunk.index)}
        if update.memory is None:
            events.append(MemoryKept(question=question, chunk=chunk.index, usage=reply.usage))
        else:
            memory, tokens, before = self.plan.bound_memory(update.memory, cut_off=update.cut_off)
            body |= {"memory": memory, "tokens": tokens}
            state.memory, state.tokens, state.carried = memory, tokens, chunk.index
            if tokens < before:
                cut = MemoryTruncated(
                    question=question, chunk=chunk.index, tokens_before=before, tokens_after=tokens
                )
                events.append(cut)
            updated = MemoryUpdated(
                question=question,
                chunk=chunk.index,
                memory=memory,
                tokens=tokens,
                usage=reply.usage,
            )
            events.append(updated)
        if state.carried is not None:
            body["carried"] = state.carried
        if update.done and not chunk.last:
            state.settled = body["settled"] = True
            events.append(Settled(question=question, chunk=chunk.index))
        state.next_chunk = chunk.index + 1
        return body, events

    def _answer(self, state: State, *, so_far: bool = False) -> Exchange[Answer]:
        """Asks for the answer from the memory.

        Args:
            state: of the question.
            so_far: the memory is not that of the whole document.
        """
        plan, question = self.plan, state.question
        place = f"partial-{state.next_chunk}" if so_far else "answer"
        return Exchange(
            key=f"{place}/q{question}",
            kind="answer",
            messages=plan.render("answer", question, state.memory),
            read=partial(read_answer, prompts=plan.prompts),
            most=plan.budget.output,
            bound=plan.bound("answer", question, state.tokens),
            parts=plan.parts(question, state.memory),
            record=partial(self._answered, state, so_far),
            question=question,
        )

    def _answered(self, state: State, so_far: bool, reply: Reply[Answer]) -> Record:
        answer = reply.value
        body = {
            "answer": answer.text,
            "truncated": answer.truncated,
            "form_found": answer.form_found,
            "conversation": _dump(reply),
        }
        answered = Answered(
            question=state.question,
            answer=answer.text,
            form_found=answer.form_found,
            truncated=answer.truncated,
            partial=so_far,
            usage=reply.usage,
        )
        return body, [answered]

    async def _ask(
        self,
        first: tuple[State, Exchange[Any]],
        *others: tuple[State, Exchange[Any]],
        caller: Caller | None = None,
    ) -> None:
        """Makes one exchange a question, all at once; what stops one stops that question, and the others continue."""
        if others:
            await together(self._ask(pair, caller=caller) for pair in (first, *others))
            return
        state, exchange = first
        try:
            said = (await (caller or self._caller).ask(exchange)).value
            if isinstance(said, Answer):  # a partial one may be from an earlier session
                state.answer, state.truncated = said.text, said.truncated
                state.partial = state.stopped is not None
        except LimitReached as limit:
            self._limit = str(limit)
            await self._stop(state, StopReason.LIMIT, self._limit, exchange.usage)
        except Unusable as error:
            where = "the answer call" if exchange.chunk is None else f"chunk {exchange.chunk}"
            await self._stop(state, StopReason.UNUSABLE_REPLY, f"{where}: {error}", exchange.usage)

    # --- ends

    async def _stop(self, state: State, reason: StopReason, detail: str, usage: Usage) -> None:
        state.stopped = reason, detail
        stopped = Stopped(question=state.question, reason=reason, detail=detail, usage=usage)
        await self._log.add(stopped)

    async def _stop_at_limit(self, detail: str) -> None:
        """Stops the questions that still wait; answers from the memories so far where `Limits.answer` asks for it."""
        for state in self._states:
            if state.waits:
                await self._stop(state, StopReason.LIMIT, detail, Usage())
        limits = self.host.limits
        if limits is None or not limits.answer:
            return
        unlimited = self._caller.over(self.host.model)
        stopped = [s for s in self._states if s.stopped is not None and s.memory]
        limited = [s for s in stopped if s.stopped is not None and s.stopped[0] is StopReason.LIMIT]
        if limited:
            exchanges = [(state, self._answer(state, so_far=True)) for state in limited]
            await self._ask(*exchanges, caller=unlimited)


def _dump(reply: Reply[Any], chunk: int | None = None) -> dict[str, Any]:
    return reply.conversation(chunk).model_dump(mode="json", exclude_defaults=True)


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
    """Where to continue behind a chunk that was read."""
    return ResumePoint(**{field.name: mark[field.name] for field in fields(ResumePoint)})


def _mark(chunk: Chunk) -> dict[str, Any]:
    """Where a chunk lies, as the store keeps it: enough to continue behind it, and to recognise it."""
    place = {"chunk": chunk.index, "start": chunk.start, "last": chunk.last}
    return asdict(ResumePoint.after(chunk)) | place
