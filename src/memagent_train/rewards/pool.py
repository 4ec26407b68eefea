"""A user's function in processes of its own: it cannot block the rollouts, outlast its time, or take them with it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import InvalidStateError
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from memagent.errors import ConfigError
from memagent.models.perloop import PerLoop
from memagent.tasks import Sample
from memagent.threads import in_thread
from memagent_train.rewards import worker
from memagent_train.rewards.verdict import Verdict

START_SECONDS = 120.0
"""For a process to start and to import the function. Starting takes 0.3 s; what the function's module imports comes on
top, which with torch is 10 s and more on a slow disk."""


class PooledReward:
    """A plain function of the user's, in a pool of processes.

    A call that takes too long has its process killed; one that ends its process (`os._exit`, a crash in C) loses
    only itself. Processes begin anew rather than as copies, so that they hold neither the parent's memory nor its
    device. As many calls as there are processes are handed to the pool, the others wait here: so one that never
    begins is noticed, and the pool replaced. Programs that the function starts are its own to end.

    Args:
        spec: `module:function`.
        workers: processes.
        limit: seconds that one call may take.

    Raises:
        ConfigError: a process cannot be started, or does not find the function.
    """

    def __init__(self, spec: str, *, workers: int, limit: float) -> None:
        self._spec, self._workers, self._limit = spec, workers, limit
        self._turns = PerLoop(lambda: asyncio.Semaphore(workers))
        self._changing = threading.Lock()
        self._closed = False
        self._waited: dict[ProcessFuture[Verdict], ProcessPool] = {}
        self._pool = self._started()
        try:
            self._check(self._pool)
        except BaseException:
            self._end(self._pool)
            raise

    async def judge(self, answer: str | None, sample: Sample) -> Verdict:
        """See `Reward`."""
        async with self._turns.get():
            try:
                return await self._once(answer, sample)
            except BrokenProcessPool:
                # A process died between calls (the system ended it, say), and the pool gave up with it.
                return await self._once(answer, sample)

    async def aclose(self) -> None:
        """Ends all processes, also those in the middle of a call."""
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """`aclose` for sync callers; blocks."""
        with self._changing:
            self._closed = True
            self._end(self._pool)

    async def _once(self, answer: str | None, sample: Sample) -> Verdict:
        """One attempt.

        Raises:
            BrokenProcessPool: the pool fell apart, through no fault of this call.
        """
        pool, future = await in_thread(self._submit, answer, sample)
        try:
            async with asyncio.timeout(self._limit + START_SECONDS):
                return await asyncio.wrap_future(future)
        except ProcessExpired as error:
            return Verdict(
                None, error=f"the reward function ended its process (exit code {error.exitcode})"
            )
        except TimeoutError:
            if not future.done() or future.cancelled():
                await in_thread(self._replace, pool)
                return Verdict(
                    None, error=f"no process took the reward up within {START_SECONDS:g} s"
                )
            return Verdict(
                None,
                error=f"the reward function took longer than {self._limit:g} s, or ended its process without a word",
            )
        finally:
            self._waited.pop(future, None)

    def _submit(
        self, answer: str | None, sample: Sample
    ) -> tuple[ProcessPool, ProcessFuture[Verdict]]:
        with self._changing:
            if self._closed:
                raise RuntimeError("the rewards are closed")
            if not self._pool.active:
                self._end(self._pool)
                self._pool = self._started()
            future = self._pool.schedule(worker.judge, args=(answer, sample), timeout=self._limit)
            self._waited[future] = self._pool
            return self._pool, future

    def _replace(self, pool: ProcessPool) -> None:
        """Ends a pool that does not work; the next call starts another."""
        with self._changing:
            self._end(pool)

    def _started(self) -> ProcessPool:
        return ProcessPool(
            max_workers=self._workers,
            initializer=worker.begin,
            initargs=(self._spec,),
            # Not `fork`: it would copy the threads' locks and the device's context. Not `forkserver`: it saves 0.1 s
            # of 0.3 s for each process, and is one for the whole program.
            context=get_context("spawn"),
        )

    def _check(self, pool: ProcessPool) -> None:
        try:
            wrong = pool.schedule(worker.check).result(START_SECONDS)
        except TimeoutError as error:
            raise ConfigError(
                f"importing the reward {self._spec!r} in a process of its own took longer than {START_SECONDS:g} s: "
                f"move what takes long out of its module"
            ) from error
        except (BrokenProcessPool, RuntimeError, OSError) as error:
            raise ConfigError(
                f"no process for the reward {self._spec!r} could be started ({error}). Where training is started by a "
                f"script of your own, put the call under if __name__ == '__main__'; if the function's module "
                f"ends its process when it is imported, mend that"
            ) from error
        if wrong:
            raise ConfigError(f"in a process of its own, {wrong}")

    def _end(self, pool: ProcessPool) -> None:
        """Ends a pool, and tells whoever waits for it, which the pool does not. A second time does nothing."""
        pool.stop()
        pool.join()
        for future in [future for future, its in list(self._waited.items()) if its is pool]:
            with suppress(InvalidStateError):
                future.set_exception(BrokenProcessPool("the processes of the rewards were ended"))
