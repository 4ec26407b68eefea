"""Runs a benchmark: every sample under every system ends in a record, or can be resumed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import cast

from memagent.errors import (
    AuthenticationFailed,
    ConfigError,
    ContextOverflow,
    DocumentError,
    MemagentError,
    ModelError,
    ModelNotFound,
    PromptTruncated,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
)
from memagent.threads import in_thread
from memagent_bench.drafts import Draft, Drafts, PreparedSample
from memagent_bench.folder import Folder
from memagent_bench.grid import Cell, Facts, Grid, Job
from memagent_bench.judge import record_of
from memagent_bench.meter import Account, Meter
from memagent_bench.record import Provenance, Record
from memagent_bench.systems.base import Outcome, Status, System
from memagent_bench.systems.registry import WITHOUT_MODEL
from memagent_bench.watch import SilentWatcher

IN_A_ROW = 5
"""Consecutive samples on which the model fails before the benchmark gives up. Each of these failures comes after all
the retries of `memagent.models.retry`, so this isn't chance."""
FATAL = (AuthenticationFailed, ModelNotFound, StoreCorrupt, StoreFull, StoreReadOnly)
"""Errors that would recur with every other sample; nothing is recorded for this one."""
TOO_LONG = (ContextOverflow, PromptTruncated)
"""Errors of a sample that doesn't fit the server; other samples may be shorter, or be split."""


@dataclass
class Summary:
    """How a session ended."""

    missing: list[Record] = field(default_factory=list[Record])
    """Samples of this session without an answer."""
    impossible: dict[Cell, dict[int, str]] = field(default_factory=dict[Cell, dict[int, str]])
    """Reasons why samples can't be made, by cell and index."""
    cut: int = 0
    """Samples that a limit ended before they had an answer; they have no record."""
    limit: str | None = None
    """Message of the limit."""
    failed_in_a_row: int = 0
    """Number of samples at the end on which the model failed."""


class Runner:
    """One session of a benchmark.

    Args:
        grid: what to measure.
        systems: all systems of the grid, by name.
        folder: folder of records and runs.
        meter: the meter around the systems' model.
        provenance: of this session's records.
        watcher: called at the beginning and end of each job.
        concurrency: jobs at once, each a sample under one system.
        known: facts of the data from existing records.
        failed_in_a_row: number of samples on which the model failed just before.
    """

    def __init__(
        self,
        grid: Grid,
        systems: Mapping[str, System],
        folder: Folder,
        meter: Meter,
        provenance: Provenance,
        watcher: SilentWatcher,
        *,
        concurrency: int = 16,
        known: Mapping[Cell, Facts] | None = None,
        failed_in_a_row: int = 0,
    ) -> None:
        self._systems, self._folder, self._meter = systems, folder, meter
        self._provenance, self._watcher = provenance, watcher
        self._drafts = Drafts(grid, known or {})
        self._turns = asyncio.Semaphore(concurrency)
        self._summary = Summary(failed_in_a_row=failed_in_a_row)
        self._open: dict[str, Account] = {}
        """Usage so far of samples without a record, by run id."""

    async def run(self, jobs: Sequence[Sequence[Job]]) -> Summary:
        """Runs the jobs, those of one sample together.

        Raises:
            ModelError: the model failed too often in a row, or in a way that won't resolve itself.
            RunMismatch: a task's data differ from those of the existing records.
            StoreError: a record or a run cannot be written.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for several in jobs:
                    if self._meter.reached:
                        break
                    draft = await self._drafts.begin(several[0], len(several))
                    for job in several:
                        await self._turns.acquire()
                        group.create_task(self._do(job, draft))
        except BaseExceptionGroup as errors:
            raise _pick_first(errors) from None
        finally:
            self._drafts.close()
            usages = {run_id: account.usage for run_id, account in self._open.items()}
            await in_thread(self._folder.note_spent, usages)
        self._summary.limit = self._meter.reached
        return self._summary

    async def _do(self, job: Job, draft: Draft) -> None:
        """Runs one job, from making its sample to its record."""
        try:
            case = await draft.get()
        except (ConfigError, DocumentError) as error:
            reasons = self._summary.impossible.setdefault(job.cell, {})
            reasons[job.index] = str(error)
            self._watcher.drop(job, str(error))
        else:
            await self._measure(job, case)
        finally:
            draft.leave()
            self._turns.release()

    async def _measure(self, job: Job, case: PreparedSample) -> None:
        run_id = job.run_id(self._folder.digest)
        resumed = await in_thread(self._folder.store.find, run_id) is not None
        account = self._open[run_id] = self._meter.open()
        self._watcher.begin(job, account)
        started, begun = datetime.now(UTC), time.monotonic()
        failure: Exception | None = None
        try:
            outcome = await self._answer(job, case, run_id)
        except FATAL:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a system raises, the other samples go on
            failure, outcome = error, await self._note_failure(error, run_id, account)
        if outcome.status is not Status.ANSWERED and self._meter.reached:
            # Cancelled from outside: its outcome is unknown.
            self._summary.cut += 1
            return
        record = record_of(
            *(job, case, outcome),
            seconds=time.monotonic() - begun,
            resumed=resumed,
            started=started.isoformat(timespec="milliseconds"),
            provenance=self._provenance,
        )
        await in_thread(self._folder.records.append, record)
        del self._open[run_id]
        self._watcher.end(job, record)
        self._note(record, failure)

    async def _answer(self, job: Job, case: PreparedSample, run_id: str) -> Outcome:
        outcome = await self._systems[job.system].answer(case.sample, run_id)
        if not isinstance(cast("object", outcome), Outcome):  # a system may be third-party code
            raise TypeError(f"{job.system!r} returned {outcome!r:.80}, which is not an Outcome")
        return outcome

    async def _note_failure(self, error: Exception, run_id: str, account: Account) -> Outcome:
        store = self._folder.store
        has_run = await in_thread(store.find, run_id) is not None
        return Outcome(
            answer=None,
            status=Status.FAILED,
            detail=f"{type(error).__name__}: {error}",
            run_id=run_id if has_run else None,
            usage=await in_thread(store.usage, run_id) if has_run else account.usage,
        )

    def _note(self, record: Record, failure: Exception | None) -> None:
        """Records a job's result; gives up if the model keeps failing."""
        if record.status is not Status.ANSWERED:
            self._summary.missing.append(record)
        if isinstance(failure, TOO_LONG):
            return
        if not isinstance(failure, ModelError):
            if record.system not in WITHOUT_MODEL:
                self._summary.failed_in_a_row = 0
            return
        self._summary.failed_in_a_row += 1
        if self._summary.failed_in_a_row >= IN_A_ROW:
            raise ModelError(
                f"stopped: the model failed on {self._summary.failed_in_a_row} samples in a row, the last one with "
                f"{record.detail}; check the server, then repeat the command"
            ) from failure


def _pick_first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """Returns the error that ended the session: memagent's errors before unexpected ones."""
    group = errors.subgroup(MemagentError) or errors
    first = group.exceptions[0]
    return _pick_first(first) if isinstance(first, BaseExceptionGroup) else first  # pyright: ignore[reportUnknownArgumentType]
