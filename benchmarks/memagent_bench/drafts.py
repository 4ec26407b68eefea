"""Samples in use: made in a thread, shared by systems, dropped when the last system is done with them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from memagent.errors import ConfigError, DocumentError, MemagentError, RunMismatch
from memagent.runstore import list_differences
from memagent.tasks import Sample, Task
from memagent_bench.grid import Cell, Facts, Grid, Job

CHARS_IN_FLIGHT = 256 * 1024 * 1024
"""Maximum characters of all samples in use: fifteen of 4M tokens, about 17M characters each."""
CHARS_PER_TOKEN = 5
"""Assumed characters per token until a sample is made: more than any tokenizer has for English."""


@dataclass(frozen=True)
class PreparedSample:
    """A sample and its task."""

    task: Task
    sample: Sample
    bytes: int
    """Size of the document, in UTF-8."""
    document: str
    """First 16 hex digits of the SHA-256 of the document's bytes."""


class Draft:
    """A sample that is made, or being made."""

    def __init__(
        self,
        making: asyncio.Future[PreparedSample],
        give: Callable[[int], None],
        taken: int,
        systems: int,
    ) -> None:
        self._making, self._give, self._taken, self._left = making, give, taken, systems
        making.add_done_callback(self._weigh)

    async def get(self) -> PreparedSample:
        """Returns the sample; raises what making it raised."""
        return await asyncio.shield(self._making)

    def leave(self) -> None:
        """Called when one system is done with it."""
        self._left -= 1
        if not self._left:
            self._give(self._taken)
            self._taken = 0

    def _weigh(self, future: asyncio.Future[PreparedSample]) -> None:
        """Shrinks the reservation to the room that the sample needs."""
        if future.cancelled() or future.exception() is not None or not self._left:
            return
        more = self._taken - len(future.result().sample.context)
        if more > 0:
            self._taken -= more
            self._give(more)


class Drafts:
    """Makes samples, as many at a time as fit. One that is larger than the room is made alone.

    Args:
        grid: has the tasks.
        known: facts of the data from existing records.
        chars: maximum characters of all documents in use.
    """

    def __init__(
        self, grid: Grid, known: Mapping[Cell, Facts], *, chars: int = CHARS_IN_FLIGHT
    ) -> None:
        self._grid, self._known, self._chars, self._used = grid, known, chars, 0
        self._changed = asyncio.Event()
        # One thread: samples are made one by one, so tasks need no locks.
        self._maker = ThreadPoolExecutor(1, thread_name_prefix="memagent-bench-sample")
        self._cell: tuple[Cell, Task] | None = None
        self._unmade: dict[Cell, MemagentError] = {}

    async def begin(self, job: Job, systems: int) -> Draft:
        """Starts making a job's sample as soon as there is room.

        Args:
            job: any of the sample's.
            systems: number of systems that will `leave` it.
        """
        chars = job.length * CHARS_PER_TOKEN
        while self._used and self._used + chars > self._chars:
            self._changed.clear()
            await self._changed.wait()
        self._used += chars
        making = asyncio.get_running_loop().run_in_executor(self._maker, self._make, job)
        return Draft(making, self._give, chars, systems)

    def close(self) -> None:
        """Stops making samples, without waiting for the current one."""
        self._maker.shutdown(wait=False, cancel_futures=True)

    def _give(self, chars: int) -> None:
        self._used -= chars
        self._changed.set()

    def _make(self, job: Job) -> PreparedSample:
        if self._cell is None or self._cell[0] != job.cell:
            self._cell = None  # first, to avoid holding two haystacks at once
            if (error := self._unmade.get(job.cell)) is not None:
                raise error
            try:
                task = self._grid.tasks[job.task](job.length, self._grid.options)
            except (ConfigError, DocumentError) as error:
                self._unmade[job.cell] = error
                raise
            self._compare(job, task.facts)
            self._cell = (job.cell, task)
        task = self._cell[1]
        sample = task.sample(job.index)
        raw = sample.context.encode("utf-8", "surrogatepass")
        return PreparedSample(task, sample, len(raw), hashlib.sha256(raw).hexdigest()[:16])

    def _compare(self, job: Job, facts: Facts) -> None:
        """Compares the data's facts, which may differ despite equal options: another folder, or another version."""
        if changes := list_differences(self._known.get(job.cell, facts), facts):
            raise RunMismatch(
                f"the records of {job.task!r} at {job.length} were made with different data: {changes}. Use the same "
                f"data and version to continue, or another --out"
            )
