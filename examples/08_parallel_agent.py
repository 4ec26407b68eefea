"""Your own agent on memagent's run log: notes chunks in parallel, and merges the notes into the memory once a round.

    python examples/08_parallel_agent.py

Reading in order makes one call after another. Here B chunks are read at once, each without the memory, and one more
call merges their notes into it: fewer sequential calls, but a chunk no longer sees what came before it. The run log,
retries, limits, resuming, events and the store are those of memagent's own agents: the class below only defines the
calls, their order, and the keys under which they are stored.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from memagent import ChatModel, Limits, PromptSet, Result, RunStore, StopReason, Trajectory
from memagent.chunking import Chunk, chunks
from memagent.documents import Document, Source, open_document
from memagent.errors import LimitReached, RunMismatch, WindowTooSmall
from memagent.events import Answered, ChunkRead, MemoryUpdated, Stopped
from memagent.memory.plan import MemoryPlan, MemorySettings
from memagent.prompts import read_answer, read_update
from memagent.prompts.reply import Answer, Update
from memagent.run.agent import Agent
from memagent.run.caller import Caller
from memagent.run.exchange import Exchange, Record, Reply, Unusable
from memagent.run.log import Log
from memagent.run.stream import EventStream, Loop
from memagent.run.sync import together
from memagent.runstore import RunRecord
from memagent.threads import in_thread

BETWEEN = "\n\n"
JOINT = 4
"""Extra tokens that each note may take when notes are joined: two ends, two tokens each."""


class ParallelPlan(MemoryPlan):
    """A memory plan with the same chunk size that also knows how many notes one merge can hold."""

    @property
    def width(self) -> int:
        """Chunks per round: a merge shows the notes of one round in place of a chunk.

        Raises:
            WindowTooSmall: a chunk does not hold two notes.
        """
        width = self.budget.chunk // (self.budget.memory + JOINT)
        if width < 2:
            raise WindowTooSmall(
                f"a chunk of {self.budget.chunk} tokens holds fewer than two notes of {self.budget.memory}: use a "
                f"smaller memory_tokens"
            )
        return width


@dataclass
class Progress:
    """What was read of the document so far."""

    rounds: int = 0
    chunks: int = 0
    memory: str = ""
    tokens: int = 0
    answer: str | None = None
    truncated: bool = False
    stopped: tuple[StopReason, str] | None = None


class ParallelLoop(Loop[Result]):
    """One run: rounds of parallel notes and a merge, then the answer.

    Each effect has a key: `chunk-12`, `note-12`, `update-3/q0` for the merge of round 3, `answer/q0`. A run
    killed in the middle of a round finds the committed notes, and sends only the others.
    """

    agent: ClassVar[str] = "parallel"

    def __init__(self, host: ParallelAgent, document: Source, question: str) -> None:
        self.host = host
        self.source = {"name": "", "path": None}
        self._given, self._question = document, question
        self._agent = host

    async def prepare(self, known: RunRecord | None) -> ParallelPlan:
        """Opens the document and divides the window."""
        self._document: Document = await in_thread(open_document, self._given)
        path = self._document.path if self._document.rereadable else None
        self.source = {"name": self._document.name, "path": path, "options": self._document.options}
        self.plan = await self._agent.plan(self._question)
        self.width = self.plan.width
        return self.plan

    async def run(self, log: Log, caller: Caller, *, fresh: bool) -> Result:
        """Reads round after round. Committed effects are returned without a call."""
        self._log, self._caller, self.progress = log, caller, Progress()
        try:
            await self._read()
            await self._answer()
        except LimitReached as limit:
            await self._stop(StopReason.LIMIT, str(limit))
        except Unusable as error:
            await self._stop(StopReason.UNUSABLE_REPLY, str(error))
        return await in_thread(self._result)

    # --- reading

    async def _read(self) -> None:
        stream = chunks(self._document, self.plan.chunker(), run=self.plan.counting)
        async with aclosing(_rounds(stream, self.width)) as rounds:
            async for group in rounds:
                for chunk in group:
                    await self._keep(chunk)
                notes = await together(self._note(chunk) for chunk in group)
                await self._merge(group, notes)

    async def _keep(self, chunk: Chunk) -> None:
        """Commits the place of a chunk, and refuses another document."""
        mark = asdict(chunk) | {"text": ""}
        if (body := await self._log.effect(f"chunk-{chunk.index}")) is not None:
            if body["mark"] != mark:
                raise RunMismatch(
                    f"run {self._log.run_id!r} began with another document: this one differs at or before "
                    f"character {chunk.end}; pass the same text, or use another run_id"
                )
            return
        read = ChunkRead(
            chunk=chunk.index,
            start=chunk.start,
            end=chunk.end,
            tokens=chunk.tokens,
            last=chunk.last,
        )
        await self._log.commit(
            f"chunk-{chunk.index}", {"mark": mark, "text": chunk.text}, events=[read]
        )

    async def _note(self, chunk: Chunk) -> str:
        """Returns the note on a chunk, which is read alone: at most as long as a memory."""
        reply = await self._caller.ask(self._exchange(f"note-{chunk.index}", "", 0, chunk.text))
        note, _, _ = await self._bound_in_thread(reply)
        return note

    async def _merge(self, group: Sequence[Chunk], notes: Sequence[str]) -> None:
        """Rewrites the memory with the notes of one round, within the memory budget."""
        progress, last = self.progress, group[-1].index
        text = BETWEEN.join(note for note in notes if note.strip()) or "(nothing)"
        key = f"update-{progress.rounds}/q0"
        exchange = self._exchange(key, progress.memory, progress.tokens, text)

        def record(reply: Reply[Update]) -> Record:
            memory, tokens, _ = self._bound(reply)
            body = {
                "memory": memory,
                "tokens": tokens,
                "carried": progress.rounds,
                "conversation": reply.conversation().dump(),
            }
            updated = MemoryUpdated(chunk=last, memory=memory, tokens=tokens, usage=reply.usage)
            return body, [updated]

        exchange.record = record
        reply = await self._caller.ask(exchange)
        progress.memory, progress.tokens, _ = await self._bound_in_thread(reply)
        progress.rounds += 1
        progress.chunks = last + 1

    async def _answer(self) -> None:
        plan, progress = self.plan, self.progress

        def record(reply: Reply[Answer]) -> Record:
            answer = reply.value
            body = {
                "answer": answer.text,
                "truncated": answer.truncated,
                "conversation": reply.conversation().dump(),
            }
            answered = Answered(
                answer=answer.text,
                form_found=answer.form_found,
                truncated=answer.truncated,
                usage=reply.usage,
            )
            return body, [answered]

        exchange = Exchange(
            key="answer/q0",
            kind="answer",
            messages=plan.render("answer", 0, progress.memory),
            read=lambda completion: read_answer(completion, plan.prompts),
            most=plan.budget.output,
            bound=plan.bound("answer", 0, progress.tokens),
            parts=plan.parts(0, progress.memory),
            record=record,
        )
        reply = await self._caller.ask(exchange)
        progress.answer, progress.truncated = reply.value.text, reply.value.truncated

    # --- parts

    def _exchange(self, key: str, memory: str, tokens: int, text: str) -> Exchange[Update]:
        """Builds the exchange that shows a text with a memory. Counts the whole prompt, since the text may be notes."""
        plan = self.plan
        return Exchange(
            key=key,
            kind="update",
            messages=plan.render("update", 0, memory, text),
            read=lambda completion: read_update(completion, plan.prompts, "off"),
            most=plan.budget.output,
            parts=plan.parts(0, memory, text),
        )

    def _bound(self, reply: Reply[Update]) -> tuple[str, int, int]:
        update = reply.value
        return self.plan.bound_memory(update.memory or "", cut_off=update.cut_off)

    async def _bound_in_thread(self, reply: Reply[Update]) -> tuple[str, int, int]:
        return await self.plan.counting(self._bound, reply)

    async def _stop(self, reason: StopReason, detail: str) -> None:
        """Commits why there is no answer; the run stays resumable."""
        self.progress.stopped = reason, detail
        usage = await in_thread(self._log.store.usage, self._log.run_id)
        await self._log.add(Stopped(reason=reason, detail=detail, usage=usage))

    def _result(self) -> Result:
        store, run_id, progress = self._log.store, self._log.run_id, self.progress
        reason, detail = progress.stopped or (StopReason.ANSWERED, "")
        usage, limits = store.usage(run_id), self.host.limits
        return Result(
            question=self._question,
            answer=progress.answer,
            memory=progress.memory,
            stop_reason=reason,
            usage=usage,
            chunks=progress.chunks,
            run_id=run_id,
            trajectory=Trajectory(store.conversations(run_id), progress.answer, reason),
            detail=detail,
            truncated=progress.truncated,
            cost=None if limits is None else limits.price(usage),
        )


async def _rounds(stream: AsyncIterator[Chunk], width: int) -> AsyncGenerator[list[Chunk]]:
    """Yields chunks in groups of `width`; the last group may be smaller."""
    group: list[Chunk] = []
    async for chunk in stream:
        group.append(chunk)
        if len(group) == width:
            yield group
            group = []
    if group:
        yield group


class ParallelAgent(Agent[MemorySettings]):
    """Reads a document in rounds of parallel notes.

    Args:
        model: as for `MemoryAgent`.
        settings: fields of `MemorySettings`: `window`, `chunk_tokens`, `memory_tokens`, `seed` ...
    """

    def __init__(
        self,
        model: str | ChatModel | None = None,
        *,
        limits: Limits | None = None,
        store: RunStore | str | Path | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(model, concurrency=16, limits=limits, store=store)
        self.prompts = PromptSet.load("plain")
        self.settings = MemorySettings.choose({}, **settings)

    def ask(self, document: Source, question: str, *, run_id: str | None = None) -> Result:
        """Reads and answers; resumes an existing run."""
        return self._finish(self.stream(document, question, run_id=run_id))

    def stream(
        self, document: Source, question: str, *, run_id: str | None = None
    ) -> EventStream[Result]:
        """Returns the run as an async iterator of events."""
        return EventStream(ParallelLoop(self, document, question), run_id)

    async def plan(self, question: str) -> ParallelPlan:
        """Measures the prompts and divides the window."""
        return await in_thread(
            ParallelPlan.make,
            (question,),
            self.settings,
            self.prompts,
            model=self.model,
            counter=await self.model.counter(),
            window=await self.reported_window(self.settings.window),
        )


def main() -> None:
    """Reads the example's book."""
    book = Path(__file__).with_name("epilogue.txt")
    model = os.environ.get("MEMAGENT_MODEL", "extractive")
    with ParallelAgent(model, window=4096, chunk_tokens=1200, memory_tokens=300) as agent:
        result = agent.ask(book, "What does Pierre find at Bald Hills on his return?")
    rounds = len(result.trajectory.conversations) - 1
    print(result.answer)
    print(f"{result.chunks} chunks in {rounds} rounds, {result.usage.calls} calls")


if __name__ == "__main__":
    main()
