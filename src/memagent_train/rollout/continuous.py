"""transformers' continuous batching: requests join and leave the batch at every step, and share common prefixes."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
from collections.abc import Generator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from transformers import ContinuousBatchingConfig, GenerationConfig

from memagent.errors import ConfigError, DeviceFull, ModelError, RequestRefused
from memagent.messages import Sampling
from memagent.models.sharing import Once, once_in_thread
from memagent_engines.transformers.drawing import generation_settings
from memagent_engines.transformers.loading import is_out_of_memory
from memagent_engines.transformers.sampler import (
    Sampled,
    end_ids,
    make_closed_error,
    pad_id,
    read_drawn,
    settle,
    window_of,
)
from memagent_train.rollout.meter import Meter

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.generation.continuous_batching.requests import GenerationOutput

PAGE = 256
"""Tokens per page of the cache: transformers' own choice. Prompts with a common prefix share whole pages."""
STEP_TOKENS = 1024
"""Ids per step. Measured on a CPU: half as many take twice as long, four times as many aren't faster and need a mask
four times as wide."""
POLL = 0.1
"""Seconds between checks whether the engine was stopped."""


class ContinuousSampler:
    """Serves all requests of a block together, in transformers' own thread.

    All requests of one `generating` block are drawn with the `Sampling` of the first one; seeds are ignored. With
    top-p below 1 the log-probs are over what top-p leaves, not over the whole vocabulary: that doesn't matter
    for evaluation, and settings reject it for training.

    Args:
        model: the policy, with `sdpa` or flash attention.
        tokenizer: defines the end and padding ids.
        max_batch: maximum concurrent conversations; on a CPU the cache has room for this many of the window's length.
        step_tokens: maximum ids per step, prompts plus replies.
        window: maximum tokens of prompt plus output; default the config's.

    Raises:
        ConfigError: a limit is below 1, neither model nor tokenizer defines an end token, or the model doesn't
            support continuous batching.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_batch: int = 64,
        step_tokens: int = STEP_TOKENS,
        window: int | None = None,
    ) -> None:
        if max_batch < 1 or step_tokens < 1:
            raise ConfigError(
                f"max_batch and step_tokens must be at least 1, got {max_batch!r} and {step_tokens!r}"
            )
        if not hasattr(model, "init_continuous_batching"):
            raise ConfigError(
                f"{type(model).__name__} does not support continuous batching: use engine='padded', or merge its "
                f"adapter"
            )
        self.window = window_of(model) if window is None else window
        self.meter = Meter()
        self._model = model
        self._ends = end_ids(model, tokenizer)
        self._pad = pad_id(tokenizer, self._ends)
        self._max_batch, self._step_tokens = max_batch, step_tokens
        self._sampling: Sampling | None = None
        self._starting: Once[_Engine] | None = None
        self._engine: _Engine | None = None
        self._open = False

    @contextmanager
    def generating(self) -> Generator[None]:
        """Serves requests inside the block; see `Sampler.generating`."""
        if self._open:
            raise ConfigError("the sampler is already generating: leave that block first")
        with generation_settings(self._model, ends=self._ends, pad=self._pad):
            self._open = True
            try:
                yield
            finally:
                self._open = False
                engine, self._engine = self._engine, None
                self._starting = self._sampling = None
                if engine is not None:
                    engine.close()

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        max_tokens: int,
        sampling: Sampling,
        seed: int | None,
    ) -> Sampled:
        """Draws a continuation; see `Sampler.sample`."""
        if not self._open:
            raise make_closed_error()
        if self._starting is None:
            self._sampling, self._starting = (
                sampling,
                once_in_thread(lambda: self._start(sampling)),
            )
        if sampling != self._sampling:
            raise RequestRefused(
                f"{sampling!r} was requested while the engine draws with {self._sampling!r}: a block has one "
                f"sampling; use a separate block, or engine='padded'",
                attempts=0,
            )
        engine = await self._starting.get()
        with self.meter.computing():
            return await engine.draw(prompt_ids, max_tokens)

    def _start(self, sampling: Sampling) -> _Engine:
        self._engine = _Engine(self._model, self._drawing(sampling), self._batching(), self._ends)
        return self._engine

    def _drawing(self, sampling: Sampling) -> GenerationConfig:
        return GenerationConfig(
            do_sample=sampling.temperature > 0,
            temperature=sampling.temperature or 1.0,
            top_k=0,
            top_p=sampling.top_p,
            eos_token_id=list(self._ends),
            pad_token_id=self._pad,
        )

    def _batching(self) -> ContinuousBatchingConfig:
        page = min(PAGE, max(16, self.window // 4))
        # On a GPU the engine takes what is free; elsewhere it needs a limit, or it takes most of the machine's memory.
        blocks = (
            None
            if self._model.device.type == "cuda"
            else self._max_batch * (1 + math.ceil(self.window / page))
        )
        return ContinuousBatchingConfig(
            return_logprobs=True,
            page_size=page,
            num_blocks=blocks,
            max_batch_tokens=self._step_tokens,
            max_requests_per_batch=self._max_batch,
            auto_switch_to_flash=False,  # would download kernels
        )


class _Engine:
    """One transformers manager, from start to stop, and the futures that wait for it.

    Args:
        model: the policy.
        drawing: how ids are drawn.
        batching: how requests are batched.
        ends: ids that end a reply.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        drawing: GenerationConfig,
        batching: ContinuousBatchingConfig,
        ends: Sequence[int],
    ) -> None:
        self._ends = ends
        self._numbers = itertools.count()
        self._waiting: dict[str, Future[Sampled]] = {}
        self._closing = threading.Event()
        try:
            start: Any = model.init_continuous_batching
            self._manager = start(generation_config=drawing, continuous_batching_config=batching)
        except ValueError as error:
            raise ConfigError(
                f"{type(model).__name__} does not support continuous batching ({error}): use engine='padded'"
            ) from error
        self._manager.start()
        self._thread = threading.Thread(
            target=self._hand_out, name="memagent-continuous", daemon=True
        )
        self._thread.start()

    async def draw(self, prompt_ids: Sequence[int], max_tokens: int) -> Sampled:
        """Draws a continuation.

        Raises:
            ModelError: the engine failed.
            DeviceFull: it ran out of memory.
        """
        number = str(next(self._numbers))
        reply = self._waiting[number] = Future[Sampled]()
        added = self._manager.add_request(
            list(prompt_ids), request_id=number, max_new_tokens=max_tokens
        )
        if added is None:
            self._waiting.pop(number, None)
            raise ModelError(
                "the engine stopped after an error; the first failed request has it",
                attempts=0,
            )
        try:
            return await asyncio.wrap_future(reply)
        finally:
            if self._waiting.pop(number, None) is not None:
                self._manager.cancel_request(number)

    def close(self) -> None:
        """Stops immediately; remaining requests fail. Blocks until then."""
        try:
            self._manager.stop(hard_stop=True)
            self._manager.destroy()
        finally:  # waiters must not wait forever, even if the user interrupts twice
            self._closing.set()
            self._thread.join()
            for reply in list(self._waiting.values()):
                settle(reply, make_closed_error())

    def _hand_out(self) -> None:
        """Delivers results to their waiters."""
        while not self._closing.is_set():
            result = self._manager.get_result(timeout=POLL)
            if result is None:
                self._closing.wait(0 if self._manager.is_running() else POLL)
                continue
            reply = self._waiting.pop(result.request_id, None)
            if reply is not None:
                settle(reply, self._read(result))

    def _read(self, result: GenerationOutput) -> Sampled | Exception:
        if result.error is not None:
            words = f"the engine failed while generating: {result.error}"
            if is_out_of_memory(RuntimeError(result.error)):
                return DeviceFull(f"{words}; use a smaller max_batch or window")
            return ModelError(words)
        ids, logprobs = result.generated_tokens, result.logprobs
        return read_drawn(ids, logprobs, len(ids), self._ends)
