"""Runs a user's function in separate processes, where it can't block the rollouts, exceed its time, or crash them."""

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
"""Seconds for a process to start and import the function. Starting takes 0.3 s, plus the imports of the function's
module, which with torch take 10 s and more on a slow disk."""


class PooledReward:
    """A user's sync function, in a pool of processes.

    If a call takes too long, its process is killed, with everything that it started; a call that crashes its process
    (`os._exit`, a crash in C) affects only itself.

    Args:
        spec: `module:function`.
        workers: number of processes.
        limit: seconds that one call may take.

    Raises:
        ConfigError: a process can't be started, or can't find the function.
    """

    def __init__(self, spec: str, *, workers: int, limit: float) -> None:
        self._spec, self._limit = spec, limit
        self._turns = PerLoop(lambda: asyncio.Semaphore(workers))
        begin = ProcessCall(place_of(worker.begin), {"spec": spec}, START_SECONDS)
        self._pool = WorkerPool(workers, begin)
        try:
            self._pool.run_sync(begin)
        except (OSError, ToolError) as error:  # OSError: includes TimeoutError
            self.close()
            raise ConfigError(
                f"the reward {spec!r} cannot run in a separate process: {error}. Its module is imported there, within "
                f"{START_SECONDS:g} s"
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
                return Verdict(None, error=f"the reward function returned nothing: {error}")

    async def aclose(self) -> None:
        """Ends all processes, even in the middle of a call."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Sync version of `aclose`."""
        self._pool.close()
