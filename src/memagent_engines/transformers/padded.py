"""Left-padded batches through transformers' `generate`, for any causal model on any device."""

# ruff: noqa: N806  (names of tensors end in their dimensions)

import asyncio
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from transformers import LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase

from memagent.errors import ConfigError
from memagent.messages import Sampling
from memagent_engines.transformers.batching import Batcher, Request
from memagent_engines.transformers.drafts import draw_replies, draws, verifies
from memagent_engines.transformers.drawing import Drawing, generation_settings, pad_ids
from memagent_engines.transformers.sampler import (
    Sampled,
    end_ids,
    make_closed_error,
    pad_id,
    read_drawn,
    window_of,
)


class PaddedSampler:
    """Collects requests into batches and generates each batch to its end, in a separate thread.

    What is drawn for a request depends on the weights, the prompt and the seed; the rest of its batch matters only
    through floating-point rounding.

    Args:
        model: the policy.
        tokenizer: defines the end and padding ids.
        max_batch: maximum rows per batch.
        max_batch_tokens: maximum ids per batch (prompts, replies and padding); None: no limit.
        window: maximum tokens of prompt plus output; default: the config's.

    Raises:
        ConfigError: a limit is below 1, or neither model nor tokenizer defines an end token.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_batch: int = 64,
        max_batch_tokens: int | None = None,
        window: int | None = None,
    ) -> None:
        if max_batch < 1 or (max_batch_tokens is not None and max_batch_tokens < 1):
            raise ConfigError(
                f"max_batch and max_batch_tokens must be at least 1, got {max_batch!r} and {max_batch_tokens!r}"
            )
        self.window = window_of(model) if window is None else window
        self._model = model
        self._ends = end_ids(model, tokenizer)
        self._pad = pad_id(tokenizer, self._ends)
        self._max_batch, self._max_batch_tokens = max_batch, max_batch_tokens
        self._batcher: Batcher | None = None
        self._draws, self._drafts = draws(model), verifies(model)

    @contextmanager
    def generating(self) -> Generator[None]:
        """Serves requests inside the block, in eval mode; the weights must not change.

        Leaving the block fails the remaining requests, and blocks for up to one step.

        Raises:
            ConfigError: the block is already open.
        """
        if self._batcher is not None:
            raise ConfigError("the sampler is already generating: leave that block first")
        with generation_settings(self._model, ends=self._ends, pad=self._pad):
            self._batcher = batcher = Batcher(
                self.serve, max_batch=self._max_batch, max_tokens=self._max_batch_tokens
            )
            try:
                yield
            finally:
                self._batcher = None
                # An abandoned block may be garbage-collected anywhere, even on an event loop, so it must not wait.
                batcher.close(wait=not isinstance(sys.exception(), GeneratorExit))

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        max_tokens: int,
        sampling: Sampling,
        seed: int | None,
        stopped: Callable[[Sequence[int]], bool] = lambda _: False,
    ) -> Sampled:
        """Draws up to `max_tokens` ids (> 0) that continue P ids (P > 0); the sum must fit the window.

        At temperature 0 the likeliest id is taken, and log-probs are those of temperature 1. A seed makes the draw
        repeatable. `stopped` is called in the generating thread to tell whether the ids so far end the reply.

        Raises:
            ModelError: the model failed, or isn't serving requests.
            DeviceFull: the prompt alone is too long for the device.
        """
        if self._batcher is None:
            raise make_closed_error()
        request = Request(prompt_ids, max_tokens, sampling, seed, stopped)
        self._batcher.put(request)
        return await asyncio.wrap_future(request.reply)

    def serve(self, batch: Sequence[Request]) -> list[Sampled | Exception]:
        """Generates one batch with one sampling. Blocks."""
        pairs = (
            draw_replies(self._model, batch, self._ends, self._pad, drafting=self._drafts)
            if self._draws
            else self._generate(batch)
        )
        return [
            read_drawn(ids, logprobs, request.max_tokens, self._ends)
            for request, (ids, logprobs) in zip(batch, pairs, strict=True)
        ]

    def _generate(self, batch: Sequence[Request]) -> list[tuple[list[int], list[float]]]:
        """Like `draw_replies`, for any model."""
        prompts = [request.prompt_ids for request in batch]
        inputs = pad_ids(prompts, self._pad, self._model.device, "left")
        drawing = Drawing(batch, self._ends)
        generate: Any = self._model.generate
        ids_BS = generate(
            **inputs,
            max_new_tokens=max(request.max_tokens for request in batch),
            logits_processor=LogitsProcessorList([drawing]),
        )
        return drawing.read_rows(ids_BS[:, inputs["input_ids"].shape[1] :])
