"""Runs agents on an engine: rolls out samples, in training and evaluation."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

from transformers import PreTrainedModel

from memagent.errors import StoreFull
from memagent.messages import Sampling
from memagent.runstore import RunStore
from memagent.runstore.lock import remove_lock
from memagent_train.agents import load_agent
from memagent_train.config.train import TrainConfig
from memagent_train.errors import DiskFull
from memagent_train.rewards.open import open_rewards
from memagent_train.rollout.model import RolloutModel
from memagent_train.rollout.remote import RemoteSampler
from memagent_train.rollout.roll import RolloutRequest, roll
from memagent_train.rollout.sampler import Sampler
from memagent_train.rollouts import Rollout
from memagent_train.runs.engine import adapter_merged, open_sampler
from memagent_train.runs.policy import Tokenizer

T = TypeVar("T")


class Rolling:
    """Holds agent, reward, event loop and engine. Close it after use.

    Args:
        config: the settings.
        store: file for the memory agent's runs; None: runs aren't stored.

    Raises:
        ConfigError: the agent or reward can't be loaded.
    """

    def __init__(self, config: TrainConfig, store: Path | None) -> None:
        self._config = config
        self._open = ExitStack()
        self.sampler: Sampler | RemoteSampler
        self.tokenizer: Tokenizer
        self._driven: asyncio.Task[Any] | None = None
        try:
            self.loop = self._open.enter_context(asyncio.Runner()).get_loop()
            self._store = None if store is None else RunStore(store)
            if self._store is not None:
                self._open.callback(self._store.close)
            self._agent = load_agent(config.agent, store=None)
            self._kept_agent = load_agent(config.agent, store=self._store)
            self._rewards = open_rewards(config.reward)
            self._open.callback(lambda: self.drive(self._rewards.aclose()))
        except BaseException:
            self.close()
            raise

    def attach(self, model: PreTrainedModel, tokenizer: Tokenizer) -> None:
        """Opens the engine. Must be called before any rollout.

        Raises:
            ConfigError: a setting of rollouts doesn't fit the model.
        """
        self.tokenizer, self._model = tokenizer, model
        self.sampler = sampler = open_sampler(self._config.rollout, model, tokenizer)
        if isinstance(sampler, RemoteSampler):
            self._open.callback(lambda: self.drive(sampler.aclose()))

    def policy(self, sampling: Sampling) -> RolloutModel:
        """Returns the policy as a chat model with this sampling, whatever requests say."""
        return RolloutModel(self.sampler, self.tokenizer, sampling=sampling)

    def roll(
        self,
        requests: Sequence[RolloutRequest],
        policy: RolloutModel,
        *,
        kept: bool,
        on_done: Callable[[Rollout], None],
    ) -> list[Rollout]:
        """Makes rollouts, in the order of the requests.

        Args:
            requests: the requests.
            policy: the model that draws.
            kept: whether the memory agent's runs stay in the store.
            on_done: called with each rollout as it finishes.

        Raises:
            DiskFull: the store is full.
        """

        def pass_on(rollout: Rollout) -> None:
            if rollout.error.startswith(f"{StoreFull.__name__}:"):
                raise DiskFull(
                    f"runs cannot be stored ({rollout.error}): free some space, or set logging.runs = 0; then run the "
                    f"same command again"
                )
            on_done(rollout)

        work = roll(
            requests,
            model=policy,
            agent=self._kept_agent if kept else self._agent,
            verifier=self._rewards,
            concurrency=self._config.rollout.concurrency,
            on_done=pass_on,
        )
        with self._merge_adapter(), self.sampler.generating():
            rollouts = self.drive(work)
        if kept and self._store is not None:
            for rollout in rollouts:
                # The run has ended; kept, the locks would soon be hundreds of thousands of files.
                remove_lock(self._store.path, rollout.rollout_id)
        return rollouts

    def _merge_adapter(self) -> AbstractContextManager[object]:
        """Merges an adapter on a CPU: there it costs as much as a small model, half of a pass, and memory is cheap."""
        remote, on_cpu = isinstance(self.sampler, RemoteSampler), self._model.device.type == "cpu"
        return adapter_merged(self._model) if on_cpu and not remote else nullcontext()

    def drive(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs `work` on the event loop; if interrupted, cancels it first."""
        self._driven = task = self.loop.create_task(work)
        try:
            return self.loop.run_until_complete(task)
        except BaseException:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                self.loop.run_until_complete(task)
            raise

    def cancel(self) -> bool:
        """Cancels what another thread drives; returns whether it drives anything."""
        if self._driven is None or self._driven.done():
            return False
        self.loop.call_soon_threadsafe(self._driven.cancel)
        return True

    def close(self) -> None:
        """Ends the reward's processes, and closes the store and the event loop."""
        self._open.close()
