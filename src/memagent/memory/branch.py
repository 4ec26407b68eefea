"""A branch: a new run that begins with the memory that another run had before a chunk (ADR 0035)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memagent.documents import Source, open_document
from memagent.errors import BudgetError, ConfigError, RunMismatch
from memagent.memory.loop import MemoryLoop
from memagent.memory.plan import MemoryPlan
from memagent.memory.state import restore
from memagent.run.log import Log
from memagent.runstore import RunRecord
from memagent.texts import plural
from memagent.threads import in_thread

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent


class BranchLoop(MemoryLoop):
    """A reading whose first chunks are copied from another run. After that it is like any other."""

    _given: Source | None

    def __init__(
        self,
        host: MemoryAgent,
        questions: tuple[str, ...],
        document: Source | None,
        branch: dict[str, Any],
    ) -> None:
        super().__init__(host, questions, document)
        self._branch = branch

    async def prepare(self, known: RunRecord | None) -> MemoryPlan:
        """See `Loop.prepare`. A new branch's errors are raised before it exists, except for a missing document."""
        if self._given is None:
            await in_thread(self._find_document, known)
        self.plan = replace(await super().prepare(known), branch=self._branch)
        if known is None:
            await self.plan.counting(self._fit)
        return self.plan

    async def begin(self, log: Log) -> int:
        """Copies the first chunks, unless an earlier session did."""
        if await in_thread(log.store.last_seq, log.run_id) < 0:
            origin, before = self._branch["run"], self._branch["before"]
            bodies = await self.plan.counting(self._fit)
            started = self._started(run_id=log.run_id, origin=origin, before=before)
            arguments = (log.run_id, origin, before, started, bodies)
            await in_thread(log.store.copy_before, *arguments)
        return -1

    def _find_document(self, run: RunRecord | None) -> None:
        """Opens the document of this run, or of the origin if this one is new, if chunks are left to read. Blocks."""
        store, (origin, before) = self.host.store, self._branch.values()
        record = self._origin() if run is None else run
        self.source = old = record.source
        chunk = store.effect(origin, f"chunk-{before - 1}") if run is None else None
        is_read = chunk and chunk["mark"]["last"] if run is None else store.is_answered(run.id)
        if not is_read and old["path"] is not None:
            self._given = open_document(Path(old["path"]), name=old["name"], **old["options"])

    def _origin(self) -> RunRecord:
        """Returns the run to branch from; raises if a branch can't begin at that chunk. Blocks."""
        store, (origin, before) = self.host.store, self._branch.values()
        record = store.get(origin)
        check_origin(record)
        count = len(record.binding["questions"])
        chunks = min(state.next_chunk for state in restore(store, origin, count))
        if type(before) is not int or not 1 <= before <= chunks:
            raise ConfigError(
                f"before={before!r}: run {origin!r} read {plural(chunks, 'chunk')}, so it must be "
                f"{'1' if chunks == 1 else f'1 to {chunks}'}. To start from nothing, use memagent ask"
            )
        return record

    def _fit(self) -> dict[str, dict[str, Any]]:
        """Returns the effects that wrote the memories, made safe for the new run's prompts. Blocks."""
        store, (origin, before) = self.host.store, self._branch.values()
        count = len(self._origin().binding["questions"])
        if (new_count := len(self.plan.questions)) != count:
            raise RunMismatch(
                f"run {origin!r} has {plural(count, 'question')} with a memory each, got {new_count}: give as many, "
                f"in the same order"
            )
        bodies: dict[str, dict[str, Any]] = {}
        for question in range(count):
            last_update = store.effect(origin, f"update-{before - 1}/q{question}") or {}
            if last_update.get("carried") is None:
                continue
            body = store.effect(origin, key := f"update-{last_update['carried']}/q{question}") or {}
            memory = self.plan.neutraliser.safe(body["memory"])
            tokens = self.plan.counter.count(memory)
            if tokens > self.plan.budget.memory:
                raise BudgetError(
                    f"the memory before chunk {before} of run {origin!r} has {tokens} tokens, over this agent's "
                    f"{self.plan.budget.memory}: give memory_tokens={tokens} (--memory-tokens) or more"
                )
            body.pop("settled", None)
            bodies[key] = body | {"memory": memory, "tokens": tokens}
        return bodies


def check_origin(record: RunRecord) -> None:
    """Raises a RunMismatch if a run has no memories to ask about or branch from."""
    if (agent := record.binding["agent"]) != MemoryLoop.agent:
        kind = {"tools": "a tool session", "extract": "an extraction, which has rows"}[agent]
        reason = "only readings that answer questions have memories"
        raise RunMismatch(f"run {record.id!r} is {kind}: {reason}")
