"""Extraction: the reading loop, with updates that add rows to the store (ADR 0030)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel

from memagent.chunking import Chunk
from memagent.chunking.fitting import within
from memagent.documents import Source
from memagent.events import Answered, Event, MemoryKept, MemoryUpdated, RowsFound
from memagent.memory.extraction import INVALID, ROW, SEEN, Extraction
from memagent.memory.loop import MemoryLoop
from memagent.memory.state import State
from memagent.messages import Usage
from memagent.prompts.rows import BadRow, RowForm, RowPrompts, RowReply, WrittenRow, read_rows
from memagent.run.caller import Caller
from memagent.run.exchange import Exchange, Record, Reply
from memagent.run.log import Log
from memagent.run.result import Result
from memagent.runstore.conversations import without_text
from memagent.texts import digest, plural
from memagent.threads import in_thread
from memagent.tokens import TokenCounter

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent

REPAIRS = 2
"""How often a chunk's invalid rows are asked for again: as often as an unusable reply."""
REPLIES = 8
"""Maximum replies about one chunk, if they are cut off: a chunk has about five times the tokens of a reply, and rows as
JSON may take more tokens than their source."""


def _name_seen(line: str) -> str:
    return SEEN % (int(digest(line, 8), 16) >> 1)  # SQLite's integers are signed


@dataclass(frozen=True)
class Progress:
    """What an extraction continues from. All fields but the last three are about the open chunk."""

    replies: int = 0
    """Replies so far; 0 if no chunk is open."""
    repairs: int = 0
    note: str = ""
    """Text that precedes the rows in the memory."""
    pending: tuple[BadRow, ...] = ()
    """Invalid rows that were asked for again."""
    tail: str | None = None
    """The row in which an earlier reply was cut off, to continue from once `pending` is repaired."""
    rows: int = 0
    invalid: int = 0
    duplicates: int = 0


class RowLoop(MemoryLoop):
    """One extraction from one document."""

    agent: ClassVar[str] = "extract"
    again: ClassVar[str] = "agent.extract(..., run_id={!r})"

    def __init__(
        self, host: MemoryAgent, prompts: RowPrompts, form: RowForm, what: str, document: Source
    ) -> None:
        self._prompts, self._form, self._what = prompts, form, what
        super().__init__(host, (prompts.say("request", what=what, schema=form.text),), document)
        self._shown_questions = (what,)

    def _update(self, chunk: Chunk, state: State) -> Exchange[Any]:
        """Makes the call that shows a chunk, whose rows are added."""
        exchange: Exchange[Any] = super()._update(chunk, state)
        exchange.key = f"update-{state.step + chunk.index - state.next_chunk}/q0"
        exchange.read = partial(read_rows, prompts=self._prompts, form=self._form)
        exchange.doubts = None
        exchange.record = partial(self._record_rows, exchange, state, chunk)
        return exchange

    def _record_rows(
        self, exchange: Exchange[Any], state: State, chunk: Chunk, reply: Reply[RowReply]
    ) -> Record:
        """Stores the rows of a reply, and keeps the chunk open if it needs another. Blocks."""
        old, place = Progress(**state.progress), self._place(chunk)
        extra_effects: dict[str, Mapping[str, Any]] = {}
        fresh = self._add_new(reply.value.rows, old, place, extra_effects)
        new, rejects = self._continue(reply.value, old, len(fresh))
        for number, row in enumerate(rejects, old.invalid):
            extra_effects[INVALID % number] = row._asdict() | place
        body: dict[str, Any] = {
            "conversation": reply.conversation(chunk.index).dump(),
            "progress": asdict(new),
            "next": chunk.index + (not new.replies),
        }
        rows_event = RowsFound(
            chunk=chunk.index,
            rows=len(fresh),
            duplicates=new.duplicates - old.duplicates,
            invalid=len(rejects),
            total=new.rows,
        )
        lines = state.memory.removeprefix(old.note).split("\n") + [row.line for row in fresh]
        memory, tokens = self._fit(new.note, list(filter(None, lines)))
        fields: dict[str, Any] = {"chunk": chunk.index, "usage": reply.usage}
        event: Event = MemoryKept(**fields)
        if memory != state.memory:
            event = MemoryUpdated(**fields, memory=memory, tokens=tokens)
            body |= {"memory": memory, "tokens": tokens}
            state.memory, state.tokens, state.carried = memory, tokens, state.step
        if state.carried is not None:
            body["carried"] = state.carried
        # Only now: if counting failed above, all of this is done again.
        exchange.also = extra_effects
        state.step, state.next_chunk, state.progress = state.step + 1, body["next"], asdict(new)
        return without_text(body, chunk.text), [rows_event, event]

    def _continue(
        self, reply: RowReply, old: Progress, fresh: int
    ) -> tuple[Progress, list[BadRow]]:
        """Returns what the extraction continues from after a reply with `fresh` new rows, and the rejected rows."""
        replies, ask_again = old.replies + 1, old.replies + 1 < REPLIES
        bad_rows = [*reply.find_missing([BadRow(*row) for row in old.pending]), *reply.bad]
        tail = reply.tail if old.tail is None else old.tail
        # Rows that a repair leaves out are asked for again only if it was cut off.
        repairable = bool(reply.bad or (bad_rows and reply.tail is not None))
        repair = repairable and ask_again and old.repairs < REPAIRS
        more = ask_again and not repair and tail is not None and (fresh > 0 or old.tail is not None)
        rejects = [] if repair else bad_rows[:]
        if tail is not None and not (repair or more):
            reason = f"the reply was cut off by its limit of {self.plan.budget.output} tokens"
            reason += " before its first new row" if ask_again else ", like those before it"
            rejects.append(BadRow(tail, reason))
        counts: dict[str, Any] = {
            "rows": old.rows + fresh,
            "invalid": old.invalid + len(rejects),
            "duplicates": old.duplicates + len(reply.rows) - fresh,
        }
        if not (repair or more):
            return Progress(**counts), rejects
        problem = "\n\n".join(f"{row.text}\n{row.problem}" for row in bad_rows)
        name = "invalid" if repair else "cut_off"
        note = self._prompts.say(name, problem=problem, tail=tail or "")
        # Half of the memory is left for rows.
        limit = max(1, self.plan.budget.memory // 2)
        note, *_ = within(self.plan.neutraliser.safe(note), limit, self.plan.counter)
        new = Progress(replies, old.repairs + repair, note, **counts)
        return replace(new, pending=tuple(bad_rows), tail=tail) if repair else new, rejects

    def _add_new(
        self,
        rows: Sequence[WrittenRow],
        old: Progress,
        place: dict[str, Any],
        extra_effects: dict[str, Mapping[str, Any]],
    ) -> list[WrittenRow]:
        """Adds the rows that the run doesn't have yet to the effects to commit, and returns them."""
        fresh, log = list[WrittenRow](), self._log
        for row in rows:
            # Fields of dicts may be in any order; earlier versions hashed the line unsorted.
            key = _name_seen(json.dumps(json.loads(row.line), sort_keys=True))
            effects = map(partial(log.store.effect, log.run_id), (key, _name_seen(row.line)))
            if key in extra_effects or any(effects):
                continue
            number = old.rows + len(fresh)
            extra_effects[key] = {"row": number}
            extra_effects[ROW % number] = {"row": row.text, **place}
            fresh.append(row)
        return fresh

    def _place(self, chunk: Chunk) -> dict[str, Any]:
        body = self._log.store.effect(self._log.run_id, f"chunk-{chunk.index}") or {}
        place = body.get("place", "")
        return {"chunk": chunk.index, "start": chunk.start, "end": chunk.end, "place": place}

    def _fit(self, note: str, lines: list[str]) -> tuple[str, int]:
        """Returns the memory (a note, then the newest rows that fit the budget) and its tokens."""
        counter: TokenCounter = self.plan.counter
        while True:
            rows = self.plan.neutraliser.safe("\n".join(lines))
            memory = "\n\n".join(filter(None, (note, rows)))
            tokens = counter.count(memory)
            excess = tokens - self.plan.budget.memory
            if excess <= 0 or not lines:
                return memory, tokens
            lines = lines[max(1, len(lines) * excess // tokens) :]

    # --- ends

    async def _conclude(self, states: list[State], *, so_far: bool = False) -> None:
        """Answers with the number of rows. If `so_far`, does nothing: the rows are in the store already."""
        for state in states if not so_far else ():
            total = Progress(**state.progress)
            answer = plural(total.rows, "row") + f", {total.invalid} invalid" * bool(total.invalid)
            facts: dict[str, Any] = {"answer": answer, "truncated": False, "form_found": True}
            await self._log.commit("answer/q0", facts, events=[Answered(**facts, usage=Usage())])
            state.answer = answer

    async def run(self, log: Log, caller: Caller, *, fresh: bool) -> list[Result]:
        """See `MemoryLoop.run`."""
        (result,), (state,) = await super().run(log, caller, fresh=fresh), self._states
        row_result = replace(result, question=self._what)
        arguments = (row_result, log.store, self._form, state.progress)
        return [await in_thread(Extraction[BaseModel].of, *arguments)]
