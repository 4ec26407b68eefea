"""The loop: read chunk after chunk, let the model rewrite the memory, then answer from it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from memagent.agents.plan import Plan
from memagent.chunking import Chunk, ResumePoint, chunks
from memagent.chunking.cuts import grapheme_floor, last_sentence_end
from memagent.documents import Document
from memagent.errors import (
    ContextOverflow,
    DocumentRequired,
    LimitReached,
    RunMismatch,
)
from memagent.events import (
    Answered,
    ChunkRead,
    Event,
    MemoryKept,
    MemoryTruncated,
    MemoryUpdated,
    Neutralised,
    Retried,
    Settled,
    Stopped,
)
from memagent.messages import CallKind, ChatRequest, Completion, Message, Usage
from memagent.models.base import ChatModel
from memagent.prompts import UnusableReply, read_answer, read_update
from memagent.runner import Journal, prefetch, together
from memagent.runstore import QuestionState, Step
from memagent.trajectory import Conversation, StopReason

UNUSABLE_RETRIES = 2
"""How often a call is sent again when its reply is empty or ends inside its reasoning."""
T = TypeVar("T")


@dataclass(frozen=True)
class _Reply(Generic[T]):
    """A usable reply, and what it took to get it."""

    parsed: T
    conversation: Conversation
    usage: Usage
    retried: list[Event]


class _Unusable(Exception):
    """All replies to one call were unusable."""

    def __init__(self, detail: str, usage: Usage, retried: list[Event]) -> None:
        super().__init__(detail)
        self.detail, self.usage, self.retried = detail, usage, retried


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
        self.plan, self.model, self.document, self.journal = plan, model, document, journal
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
        replayed = False
        async with aclosing(self.journal.replay()) as committed:
            async for event in committed:
                replayed = True
                yield event
        if not replayed:
            for event in await self.journal.log(started):
                yield event
        self._states = await self.journal.state(len(self.plan.questions))
        self._last_mark = await self.journal.last_mark()
        async with aclosing(self._read()) as news:
            async for event in news:
                yield event
        waiting = [s for s in self._states if s.answer is None and s.question not in self.stopped]
        if waiting and self._limit is None:
            _, repeated = await self.journal.begin(None, [s.question for s in waiting])
            async with aclosing(
                together(self._answer(s, repeated[s.question]) for s in waiting)
            ) as steps:
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
            mark = self._last_mark if first > furthest else await self.journal.mark(first - 1)
            assert mark is not None, "a step is committed after its chunk"
            resume = _behind(mark)
        stream = chunks(self.document, self.plan.chunker(resume))
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
            same = await self.journal.mark(chunk.index) == _mark(chunk)
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
        events: list[Event] = []
        if new:
            events.append(
                ChunkRead(
                    chunk=chunk.index,
                    start=chunk.start,
                    end=chunk.end,
                    tokens=chunk.tokens,
                    last=chunk.last,
                )
            )
            if chunk.neutralised:
                events.append(Neutralised(chunk=chunk.index, count=chunk.neutralised))
        mark = _mark(chunk)
        events, repeated = await self.journal.begin(
            chunk.index, [s.question for s in states], mark=mark if new else None, events=events
        )
        if new:
            self._last_mark = mark
        for event in events:
            yield event
        async with aclosing(
            together(self._update(s, chunk, repeated[s.question]) for s in states)
        ) as steps:
            async for events in steps:
                for event in events:
                    yield event

    async def _update(self, state: QuestionState, chunk: Chunk, repeated: int) -> list[Event]:
        """One update call, committed."""
        question, plan = state.question, self.plan
        try:
            reply = await self._ask(
                "update",
                state,
                chunk,
                lambda reply: read_update(reply, plan.prompts, plan.settings.gate),
            )
        except LimitReached as limit:
            self._limit = str(limit)
            return []
        except _Unusable as error:
            return await self._give_up(state, chunk.index, error)
        usage = reply.usage + Usage(repeated=repeated)
        update, events = reply.parsed, reply.retried
        memory, tokens = None, None
        if update.memory is None:
            events.append(MemoryKept(question=question, chunk=chunk.index, usage=usage))
        else:
            memory, tokens, before = await asyncio.to_thread(
                bound_memory, update.memory, plan, cut_off=update.cut_off
            )
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
                    usage=usage,
                )
            )
        if update.done:
            events.append(Settled(question=question, chunk=chunk.index))
        step = Step(
            question=question,
            chunk=chunk.index,
            conversation=reply.conversation,
            usage=usage,
            memory=memory,
            tokens=tokens,
            settled=update.done,
        )
        events = await self.journal.commit(step, events)
        state.next_chunk = chunk.index + 1
        state.settled = update.done
        state.memory = state.memory if memory is None else memory
        return events

    async def _answer(self, state: QuestionState, repeated: int) -> list[Event]:
        """One answer call, committed."""
        try:
            reply = await self._ask(
                "answer",
                state,
                None,
                lambda reply: read_answer(reply, self.plan.prompts.answer_form),
            )
        except LimitReached as limit:
            self._limit = str(limit)
            return []
        except _Unusable as error:
            return await self._give_up(state, None, error)
        usage, answer = reply.usage + Usage(repeated=repeated), reply.parsed
        step = Step(
            question=state.question,
            chunk=None,
            conversation=reply.conversation,
            usage=usage,
            answer=answer.text,
        )
        answered = Answered(
            question=state.question,
            answer=answer.text,
            form_found=answer.form_found,
            truncated=answer.truncated,
            usage=usage,
        )
        events = await self.journal.commit(step, [*reply.retried, answered])
        state.answer = answer.text
        return events

    async def _give_up(
        self, state: QuestionState, chunk: int | None, why: _Unusable
    ) -> list[Event]:
        """Stops one question on an unusable reply; the others go on."""
        self.stopped[state.question] = (StopReason.UNUSABLE_REPLY, why.detail)
        stopped = Stopped(
            question=state.question,
            reason=StopReason.UNUSABLE_REPLY,
            detail=why.detail,
            usage=why.usage,
        )
        events = [*why.retried, stopped]
        return await self.journal.spend(state.question, chunk, why.usage, events)

    async def _stop_at_limit(self, detail: str) -> list[Event]:
        """Stops every question that has no answer yet."""
        waiting = [s for s in self._states if s.answer is None and s.question not in self.stopped]
        self.stopped |= {state.question: (StopReason.LIMIT, detail) for state in waiting}
        return await self.journal.log(
            *(
                Stopped(
                    question=state.question, reason=StopReason.LIMIT, detail=detail, usage=Usage()
                )
                for state in waiting
            )
        )

    # --- one call

    async def _ask(
        self,
        kind: CallKind,
        state: QuestionState,
        chunk: Chunk | None,
        parse: Callable[[Completion], T],
    ) -> _Reply[T]:
        """Sends one request until its reply is usable.

        Raises:
            _Unusable: it never was.
            ContextOverflow: the prompt leaves no room for an output, though its parts were counted.
        """
        plan, question = self.plan, self.plan.questions[state.question]
        messages = plan.render(kind, question, state.memory, "" if chunk is None else chunk.text)
        room = await self._room(messages)
        place = "answer" if chunk is None else chunk.index
        usage, retried = Usage(), list[Event]()
        detail = ""
        for attempt in range(1 + UNUSABLE_RETRIES):
            request = ChatRequest(
                messages=messages,
                max_tokens=room,
                sampling=plan.settings.sampling,
                seed=seed_of(plan.settings.seed, state.question, place, attempt),
                thinking=None if attempt == 0 else False,
                kind=kind,
                parts=self._parts(question, state.memory, chunk),
            )
            completion = await self.model.complete(request)
            retried += [
                Retried(
                    question=state.question,
                    chunk=None if chunk is None else chunk.index,
                    reason=failure.error,
                    waited=failure.waited,
                )
                for failure in completion.failures
            ]
            try:
                parsed = parse(completion)
            except UnusableReply as error:
                detail = str(error)
            else:
                reply = Message(role="assistant", content=completion.text)
                conversation = Conversation(
                    messages=(*messages, reply),
                    kind=kind,
                    chunk=None if chunk is None else chunk.index,
                    tokens=completion.tokens,
                )
                return _Reply(parsed, conversation, usage + completion.usage, retried)
            spent = completion.usage
            usage += Usage(
                retries=spent.retries + 1,
                retry_tokens=spent.retry_tokens + spent.prompt_tokens + spent.completion_tokens,
            )
            if attempt < UNUSABLE_RETRIES:
                retried.append(
                    Retried(
                        question=state.question,
                        chunk=None if chunk is None else chunk.index,
                        reason=detail,
                    )
                )
        where = "the answer call" if chunk is None else f"chunk {chunk.index}"
        detail = f"{where}: {detail}, {1 + UNUSABLE_RETRIES} times in a row"
        raise _Unusable(detail, usage, retried)

    async def _room(self, messages: tuple[Message, ...]) -> int:
        """Tokens left for the output: promise 1 is kept here, whatever the parts were counted as."""
        budget = self.plan.budget
        prompt = await asyncio.to_thread(self.plan.counter.count_messages, messages)
        room = min(budget.output, budget.window - prompt)
        if room < (budget.output + 1) // 2:
            raise ContextOverflow(
                f"the prompt takes {prompt} tokens of a window of {budget.window}, at most {budget.prompt} were "
                f"planned: the counter {self.plan.counter.name!r} does not count as this model does; name the "
                f"model's own with --tokenizer"
            )
        return room

    def _parts(self, question: str, memory: str, chunk: Chunk | None) -> dict[str, str]:
        prompts, gate = self.plan.prompts, self.plan.settings.gate
        parts = {
            "question": question,
            "memory": memory,
            "empty_memory": prompts.empty_memory,
            "answer_form": prompts.answer_form,
        }
        if chunk is not None:
            parts["chunk"] = chunk.text
            if gate in ("update", "both"):
                parts["keep"] = prompts.keep
        return parts


def bound_memory(text: str, plan: Plan, *, cut_off: bool) -> tuple[str, int, int]:
    """Makes a memory safe to show again, and cuts it at the last sentence end within the budget.

    Args:
        text: the memory as the model wrote it.
        plan: names the counter, the budget and what is neutralised.
        cut_off: the reply ended in the middle, so its last sentence is no sentence.

    Returns:
        The memory, its tokens (at most the budget's), and the tokens that it had before.
    """
    safe = plan.neutraliser.safe(text)
    measured = plan.counter.measure(safe)
    before, limit = measured.tokens, plan.budget.memory
    if before <= limit and not cut_off:
        return safe, before, before
    chars = len(safe) if before <= limit else measured.chars_within(limit)
    while True:
        # The space lets a full stop at the very end count as the end of a sentence.
        end = last_sentence_end(safe + " ", chars) or grapheme_floor(safe, chars)
        kept = safe[:end].rstrip()
        tokens = plan.counter.count(kept)
        if tokens <= limit:
            return kept, tokens, before
        chars = end - 1


def seed_of(run_seed: int, question: int, place: int | str, attempt: int) -> int:
    """The engine's seed for one call: 31 bits, the same in every process and on every resume."""
    key = f"{run_seed}:{question}:{place}:{attempt}".encode()
    return int.from_bytes(hashlib.blake2b(key, digest_size=4).digest()) & 0x7FFFFFFF


def _behind(mark: dict[str, Any]) -> ResumePoint:
    """Where to go on behind a chunk that was read."""
    return ResumePoint(
        index=mark["chunk"] + 1,
        covered=mark["end"],
        next_start=mark["next_start"],
        digest=mark["digest"],
        chars=mark["end"] - mark["start"],
        tokens=mark["tokens"],
    )


def _mark(chunk: Chunk) -> dict[str, Any]:
    """Where a chunk lies, as the store keeps it: enough to go on behind it, and to know it again."""
    return {
        "chunk": chunk.index,
        "start": chunk.start,
        "end": chunk.end,
        "next_start": chunk.next_start,
        "tokens": chunk.tokens,
        "digest": chunk.digest,
        "last": chunk.last,
    }
