"""A user's function in processes of its own: it cannot block the rollouts, outlast its time, or take them with it."""

from __future__ import annotations

import asyncio
import json

from memagent.errors import ConfigError, ToolError
from memagent.models.sharing import PerLoop
from memagent.tasks import Sample
from memagent.threads import in_thread
from memagent.tools.processes import ProcessCall, WorkerPool, place_of
from memagent_train.rewards import worker
from memagent_train.rewards.verdict import Verdict

START_SECONDS = 120.0
"""For a process to start and to import the function. Starting takes 0.3 s; what the function's module imports comes on
top, which with torch is 10 s and more on a slow disk."""


class PooledReward:
    """A plain function of the user's, in a pool of processes.

    A call that takes too long has its process killed, with all that it started; one that ends its process
    (`os._exit`, a crash in C) loses only itself.

    Args:
        spec: `module:function`.
        workers: processes.
        limit: seconds that one call may take.

    Raises:
        ConfigError: a process cannot be started, or does not find the function.
    """

    def __init__(self, spec: str, *, workers: int, limit: float) -> None:
        self._spec, self._limit = spec, limit
        self._turns = PerLoop(lambda: asyncio.Semaphore(workers))
        begin = ProcessCall(place_of(worker.begin), {"spec": spec}, START_SECONDS)
        self._pool = WorkerPool(workers, begin)
        try:
            self._pool.run_sync(begin)
        except (OSError, ToolError) as error:  # OSError: a TimeoutError too
            self.close()
            raise ConfigError(
                f"in a process of its own, the reward {spec!r} cannot be used: {error}. Its module is imported there, "
                f"and has {START_SECONDS:g} s for it"
            ) from error

    async def judge(self, answer: str | None, sample: Sample) -> Verdict:
        """See `Reward`."""
        judged = await in_thread(worker.pack, answer, sample)
        arguments = {"spec": self._spec, "judged": judged}
        call = ProcessCall(place_of(worker.judge), arguments, self._limit)
        async with self._turns.get():
            try:
                return Verdict(**json.loads(await self._pool.run(call)))
            except (TimeoutError, ToolError) as error:
                return Verdict(None, error=f"the reward function gave nothing: {error}")

    async def aclose(self) -> None:
        """Ends all processes, also those in the middle of a call."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """`aclose` for sync callers; blocks."""
        self._pool.close()
