"""The loop: read chunk after chunk, let the model rewrite the memory, then answer from it."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import asdict, fields, replace
from functools import partial
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
from memagent.memory.degenerate import has_collapsed, repetition
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
from memagent.texts import quote
from memagent.threads import in_thread
from memagent.trajectory import StopReason

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent


class MemoryLoop(Loop[list[Result]]):
    """One run over one document, None for a run that needs nothing more of it, for one or more questions."""

    agent: ClassVar[str] = "memory"

    def __init__(
        self, host: MemoryAgent, questions: tuple[str, ...], document: Source | None
    ) -> None:
        self.host = host
        self.source = {"name": "", "path": None}
        self._make_plan, self._given = partial(host.plan, questions), document
        self._document: Document | None = None
        self._limit: str | None = None
        """The usage limit that was reached."""

    async def prepare(self, known: RunRecord | None) -> MemoryPlan:
        """See `Loop.prepare`."""
        if self._given is not None:
            document = self._document = await in_thread(open_document, self._given)
            path = document.path if document.rereadable else None
            self.source = {"name": document.name, "path": path, "options": document.options}
        window = None if known is None else known.binding["budget"]["window"]
        self.plan = await self._make_plan(window)
        return self.plan

    async def run(self, log: Log, caller: Caller, *, fresh: bool) -> list[Result]:
        """See `Loop.run`. A document other than the one that the run began with is a `RunMismatch`."""
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
        found = await in_thread(log.store.latest, log.run_id, "chunk")
        self._last: dict[str, Any] | None = None if found is None else found[1]["mark"]
        await self._read()
        if self._limit is None:
            await self._ask(*map(self._answer, filter(State.waits, self._states)))
        if self._limit is not None:
            await self._stop_at_limit(self._limit)
        return await in_thread(
            read_results, log.store, log.run_id, plan.questions, self._states, self.host.limits
        )

    # --- reading

    async def _read(self) -> None:
        """Shows the chunks to the questions that want them."""
        log, unread = self._log, [s.next_chunk for s in filter(self._reads, self._states)]
        if self._document is None:
            if unread:
                raise DocumentRequired(
                    f"run {log.run_id!r} needs its document again: it came from no file that can "
                    f"be opened; hand it in (document=..., or --document FILE)"
                )
            return
        furthest = -1 if self._last is None else self._last["chunk"]
        resume = None
        if (first := min(unread, default=furthest + 1)) > 0:
            mark = await self._mark(first - 1)
            resume = ResumePoint(**{field.name: mark[field.name] for field in fields(ResumePoint)})
        stream = chunks(self._document, self.plan.chunker(resume), run=self.plan.counting)
        async with aclosing(prefetch(stream)) as upcoming:
            async for chunk in upcoming:
                place = {"chunk": chunk.index, "start": chunk.start, "last": chunk.last}
                mark = asdict(ResumePoint.after(chunk)) | place
                if chunk.index <= furthest:
                    same = await self._mark(chunk.index) == mark
                else:
                    same = self._last is None or not self._last["last"]
                if not same:
                    raise RunMismatch(
                        CHANGED.format(f"it differs at or before character {chunk.end:,}")
                    )
                active = list(filter(self._reads, self._states))
                if not active:
                    return
                askers = [state for state in active if state.next_chunk == chunk.index]
                if not askers:
                    continue
                if chunk.index > furthest:
                    self._last = mark
                    await self._keep(chunk, mark)
                await self._ask(*map(partial(self._update, chunk), askers))
                if self._limit is not None:
                    return

    def _reads(self, state: State) -> bool:
        if not state.waits() or state.settled:
            return False
        last = self._last
        return last is None or not last["last"] or state.next_chunk <= last["chunk"]

    async def _mark(self, chunk: int) -> dict[str, Any]:
        """Where a chunk lies that was read: enough to continue behind it, and to recognise it."""
        body = await self._log.effect(f"chunk-{chunk}")
        assert body is not None, "an update is committed after its chunk"
        return body["mark"]

    async def _keep(self, chunk: Chunk, mark: dict[str, Any]) -> None:
        """Commits a chunk that nobody has seen yet."""
        read = ChunkRead(
            chunk=chunk.index,
            start=chunk.start,
            end=chunk.end,
            tokens=chunk.tokens,
            last=chunk.last,
        )
        events: list[Event] = [read]
        if chunk.neutralised:
            events.append(Neutralised(chunk=chunk.index, count=chunk.neutralised))
        body = {"mark": mark, "text": chunk.text}
        await self._log.commit(f"chunk-{chunk.index}", body, events=events)

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
            doubts=partial(self._problem, state, chunk),
            record=partial(self._record_update, state, chunk),
            question=question,
            chunk=chunk.index,
        )

    def _record_update(self, state: State, chunk: Chunk, reply: Reply[Update]) -> Record:
        """Bounds the new memory. Blocks."""
        question, update, events = state.question, reply.value, list[Event]()
        conversation = reply.conversation(chunk.index)
        body: dict[str, Any] = {
            "conversation": conversation.model_dump(mode="json", exclude_defaults=True)
        }
        if (problem := self._problem(state, chunk, update)) is not None:
            kept = self.plan.settings.degenerate == "keep"
            events.append(
                MemoryDegenerate(question=question, chunk=chunk.index, problem=problem, kept=kept)
            )
            update = replace(update, memory=None) if kept else update
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
        """Asks for the answer from the memory, that of the whole document or the one so far."""
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
            doubts=partial(self._problem, state, None),
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
        conversation = reply.conversation().model_dump(mode="json", exclude_defaults=True)
        answered = Answered(question=state.question, partial=so_far, usage=reply.usage, **facts)
        return facts | {"conversation": conversation}, [answered]

    def _problem(self, state: State, chunk: Chunk | None, reply: Update | Answer) -> str | None:
        """Why a new memory, or without a chunk an answer, is asked for again; None if it may stay."""
        text = reply.text if isinstance(reply, Answer) else reply.memory
        if text is None or self.plan.settings.degenerate == "take":
            return None
        if (piece := repetition(text)) is not None:
            what = "answer" if chunk is None else "new memory"
            return f"the {what} says {quote(piece)} over and over"
        if chunk is not None and has_collapsed(state.memory, text, chunk.text):
            return f"hardly a word of the memory is left, and the chunk does not explain it: {quote(text)}"
        return None

    async def _ask(self, *exchanges: Exchange[Any], caller: Caller | None = None) -> None:
        """Makes one exchange a question, all at once; what stops one stops that question, and the others continue."""
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
            self._limit = str(limit)
            await self._stop(state, StopReason.LIMIT, self._limit, exchange.usage)
        except Unusable as error:
            where = "the answer call" if exchange.chunk is None else f"chunk {exchange.chunk}"
            await self._stop(state, StopReason.UNUSABLE_REPLY, f"{where}: {error}", exchange.usage)

    # --- ends

    async def _stop(self, state: State, reason: StopReason, detail: str, usage: Usage) -> None:
        state.stopped, state.detail = reason, detail
        stopped = Stopped(question=state.question, reason=reason, detail=detail, usage=usage)
        await self._log.add_stop(stopped, among=len(self._states))

    async def _stop_at_limit(self, detail: str) -> None:
        """Stops the questions that still wait; answers from the memories so far where `Limits.answer` asks for it."""
        for state in filter(State.waits, self._states):
            await self._stop(state, StopReason.LIMIT, detail, Usage())
        limits = self.host.limits
        if limits is not None and limits.answer:
            exchanges = [
                self._answer(state, so_far=True)
                for state in self._states
                if state.stopped is StopReason.LIMIT and state.memory
            ]
            await self._ask(*exchanges, caller=self._caller.over(self.host.model))
