"""The calls of a reading: what they show, and what is committed with their replies."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from memagent.chunking import Chunk
from memagent.chunking.fitting import within
from memagent.errors import LimitReached, NoReply
from memagent.events import (
    Answered,
    Event,
    MemoryDegenerate,
    MemoryKept,
    MemoryTruncated,
    MemoryUpdated,
    Rereading,
    Settled,
    Stopped,
)
from memagent.memory.degenerate import find_problem
from memagent.memory.plan import MemoryPlan
from memagent.memory.ranking import rank
from memagent.memory.state import State
from memagent.messages import Completion, Usage
from memagent.prompts import read_answer, read_update
from memagent.prompts.reply import Answer, Update
from memagent.quotes import split
from memagent.run.caller import Caller
from memagent.run.exchange import Exchange, Record, Reply, Unusable
from memagent.run.log import Log
from memagent.run.result import Result
from memagent.run.stream import Loop
from memagent.run.sync import together
from memagent.runstore.conversations import without_text
from memagent.trajectory import StopReason

RECALLED = 8
"""Maximum sentences of past memories to recall: a few hundred tokens, in a memory of a thousand."""


class Calls(Loop[list[Result]]):
    """Shows chunks and memories to the model, separately for each question."""

    plan: MemoryPlan
    _log: Log
    _caller: Caller
    _states: list[State]
    _limit: str | None
    """Message of the usage limit that was reached, if any."""

    def _update(self, chunk: Chunk, state: State) -> Exchange[Update]:
        """Makes the call that shows a chunk for one question, whose memory is rewritten or kept."""
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
        place: dict[str, Any] = {"question": state.question, "chunk": chunk.index}
        body: dict[str, Any] = {"conversation": reply.conversation(chunk.index).dump()}
        if reply.doubt is not None:
            keep = self.plan.settings.degenerate == "keep"
            events.append(MemoryDegenerate(**place, problem=reply.doubt, kept=keep))
            update = replace(update, memory=None) if keep else update
        if update.memory is None:
            events.append(MemoryKept(**place, usage=reply.usage))
        else:
            memory, tokens, total = self.plan.bound_memory(update.memory, cut_off=update.cut_off)
            body |= {"memory": memory, "tokens": tokens}
            state.memory, state.tokens, state.carried = memory, tokens, chunk.index
            if tokens < total:
                cut = MemoryTruncated(**place, tokens_before=total, tokens_after=tokens)
                events.append(cut)
            event = MemoryUpdated(**place, memory=memory, tokens=tokens, usage=reply.usage)
            events.append(event)
        if state.carried is not None:
            body["carried"] = state.carried
        if update.done and not chunk.last:
            state.settled = body["settled"] = True
            events.append(Settled(**place))
        state.next_chunk = chunk.index + 1
        return without_text(body, chunk.text), events

    def _answer(self, state: State, *, so_far: bool = False) -> Exchange[Answer]:
        """Makes the call for the answer from the memory, of the whole document or of what was read so far."""
        plan, question = self.plan, state.question
        looks = state.next_chunk + (0 if state.again is None else 1 + state.rereads)
        place = f"partial-{looks}" if so_far else "answer"
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
        return facts | {"conversation": reply.conversation().dump()}, [answered]

    async def _ask(self, *exchanges: Exchange[Any], caller: Caller | None = None) -> None:
        """Runs one exchange per question, concurrently; an unusable reply or a refusal stops only its question."""
        if len(exchanges) != 1:
            await together(self._ask(exchange, caller=caller) for exchange in exchanges)
            return
        (exchange,) = exchanges
        state = self._states[exchange.question]
        try:
            value = (await (caller or self._caller).ask(exchange)).value
            if isinstance(value, Answer):  # a partial answer may be from an earlier session
                state.answer, state.truncated = value.text, value.truncated
                state.partial = state.stopped is not None
        except LimitReached as limit:
            self._limit = str(limit)
            await self._stop(state, StopReason.LIMIT, self._limit, exchange.usage)
        except (Unusable, NoReply) as error:
            place = "the answer call" if exchange.chunk is None else f"chunk {exchange.chunk}"
            await self._stop(state, StopReason.UNUSABLE_REPLY, f"{place}: {error}", exchange.usage)

    async def _stop(self, state: State, reason: StopReason, detail: str, usage: Usage) -> None:
        state.stopped, state.detail = reason, detail
        event = Stopped(question=state.question, reason=reason, detail=detail, usage=usage)
        await self._log.add_stop(event, among=len(self._states))

    # --- the answer, and another look if the memory does not settle it (ADR 0033)

    async def _conclude(self, states: list[State], *, so_far: bool = False) -> None:
        """Answers questions, from the whole document or from what was read so far."""
        if self.plan.settings.reread and not so_far:
            await self._ask(*(self._draft(state) for state in states if state.again is None))
            await together(map(self._reread, filter(State.waits, states)))
            states = list(filter(State.waits, states))
        caller = replace(self._caller, model=self.host.model) if so_far else None
        await self._ask(*map(partial(self._answer, so_far=so_far), states), caller=caller)

    def _draft(self, state: State) -> Exchange[Any]:
        """Makes the call for the answer, or for the phrase that says that the memory doesn't settle the question."""
        plan, prompts = self.plan, self.plan.prompts

        def read(completion: Completion) -> Answer | None:
            answer = read_answer(completion, prompts)
            return None if answer.text == prompts.unsettled else answer

        draft: Exchange[Any] = self._answer(state)
        draft.key, draft.bound = f"draft/q{state.question}", None
        note = "\n\n" * bool(prompts.unsettled_note) + prompts.unsettled_note
        draft.messages = plan.render("answer", state.question, state.memory, note=note)
        draft.parts = {**draft.parts, "unsettled": prompts.unsettled}
        draft.read = read
        draft.record = partial(self._record_draft, draft, state)
        return draft

    def _record_draft(self, exchange: Exchange[Any], state: State, reply: Reply[Any]) -> Record:
        """Commits the answer too, or recalls lost sentences and chooses chunks to read again. Blocks."""
        if reply.value is not None:
            facts, events = self._record_answer(state, False, reply)
            exchange.also = {f"answer/q{state.question}": facts}
            return {}, events
        question, store = self.plan.questions[state.question], self._log.store
        ranking = {*rank(self._past(state), question, RECALLED)}
        sentences = [text for number, text in enumerate(self._past(state)) if number in ranking]
        memory, tokens, recalled = state.memory, state.tokens, list[str]()
        for text in dict.fromkeys(sentences):
            candidate = f"{memory}\n{text}".lstrip("\n")
            safe, size, total = self.plan.bound_memory(candidate, cut_off=False)
            if size == total:
                memory, tokens, recalled = safe, size, [*recalled, text]
        keys = (f"chunk-{number}" for number in range(store.count(self._log.run_id, "chunk")))
        texts = ((store.effect(self._log.run_id, key) or {})["text"] for key in keys)
        numbers = tuple(sorted(rank(texts, question, self.plan.settings.reread)))
        dump = reply.conversation().dump()
        state.memory, state.tokens, state.again = memory, tokens, numbers
        place: dict[str, Any] = {"question": state.question, "chunks": numbers}
        event = Rereading(**place, recalled=tuple(recalled), usage=reply.usage)
        return {"again": numbers, "memory": memory, "tokens": tokens, "conversation": dump}, [event]

    def _past(self, state: State) -> Iterator[str]:
        """Yields sentences of past memories that the memory no longer has, each where it was new. Blocks."""
        store, memory_sentences = self._log.store, {*_sentences(state.memory)}
        old_sentences: set[str] = set()
        for number in range(state.next_chunk):
            body = store.effect(self._log.run_id, f"update-{number}/q{state.question}") or {}
            if "memory" in body:
                sentences, repeats = _sentences(body["memory"]), old_sentences | memory_sentences
                yield from (text for text in sentences if text not in repeats)
                old_sentences = {*sentences}

    async def _reread(self, state: State) -> None:
        """Shows the chosen chunks again."""
        while state.waits() and state.again and state.rereads < len(state.again):
            chunk = await self.plan.counting(self._load_chunk, state.again[state.rereads])
            exchange: Exchange[Any] = self._update(chunk, state)
            exchange.key = f"reread-{state.rereads}/q{state.question}"
            exchange.record = partial(self._record_reread, state, chunk)
            await self._ask(exchange)

    def _load_chunk(self, number: int) -> Chunk:
        """Returns a stored chunk, cut to the budget: it may be from the run that this one branched from. Blocks."""
        body = self._log.store.effect(self._log.run_id, f"chunk-{number}") or {}
        plan, mark = self.plan, body["mark"]
        safe = plan.neutraliser.safe(body["text"])
        text, tokens, _ = within(safe, plan.budget.chunk, plan.counter)
        # Marked as the last one: `done` has nothing left to skip.
        place = {"start": mark["start"], "end": mark["covered"], "digest": mark["digest"]}
        return Chunk(index=number, text=text, tokens=tokens, last=True, neutralised=0, **place)

    def _record_reread(self, state: State, chunk: Chunk, reply: Reply[Update]) -> Record:
        """Records it like the chunk's first update, but without moving the reading's position. Blocks."""
        position = state.next_chunk, state.carried
        body, events = self._record_update(state, chunk, reply)
        state.next_chunk, state.carried = position
        state.rereads += 1
        dump = reply.conversation(chunk.index).dump()
        fields = {"conversation": dump, "memory": state.memory, "tokens": state.tokens}
        return {**body, **fields, "hole": None}, events


def _sentences(text: str) -> list[str]:
    # Long sentences are split: parts may fit where the whole doesn't.
    parts = (part.strip() for line in text.splitlines() for part in split(line))
    return list(dict.fromkeys(filter(None, parts)))
