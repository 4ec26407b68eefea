"""Stores the runs of rollouts: keeps them for `memagent show`, or only while they run."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from memagent.runstore import RunStore
from memagent.threads import in_thread


class FreshRuns:
    """A store for the runs of rollouts, under the rollouts' ids.

    A run already stored under a rollout's id is deleted first: it was left by a killed process, and its replies aren't
    the current policy's.

    Args:
        store: where runs are kept; None keeps them only while they run.
    """

    def __init__(self, store: RunStore | None) -> None:
        self._keeps = store is not None
        # One store for all rollouts: opening one takes longer than a rollout's calls.
        self.store = RunStore(None) if store is None else store

    @asynccontextmanager
    async def run(self, run_id: str) -> AsyncGenerator[None]:
        """Makes room for a run, and removes it afterwards unless runs are kept."""
        if self._keeps:
            await in_thread(self._forget, run_id)
        try:
            yield
        finally:
            if not self._keeps:
                await in_thread(self._forget, run_id)

    def _forget(self, run_id: str) -> None:
        """Removes a run, if the store has it. Blocks."""
        if self.store.find(run_id) is not None:
            self.store.remove(run_id)
