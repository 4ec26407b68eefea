"""Left-padded batches through transformers' `generate`: for any causal model on any device."""

# ruff: noqa: N806  (names of tensors end in their dimensions)

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from transformers import LogitsProcessorList

from memagent.errors import ConfigError
from memagent.messages import Sampling
from memagent.models.transformers.batching import Batcher, Request
from memagent.models.transformers.drafts import draw_with_drafts, verifies
from memagent.models.transformers.drawing import Drawing, generation_settings, left_padded
from memagent.models.transformers.sampler import (
    Sampled,
    end_ids,
    make_closed_error,
    pad_id,
    read_drawn,
    window_of,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class PaddedSampler:
    """Gathers requests into batches and generates each batch to its end, in a thread of its own.

    What is drawn for a request depends on the weights, the prompt and the seed, and on the rest of its batch only as
    far as floating point does.

    Args:
        model: the policy.
        tokenizer: names the end and padding ids.
        max_batch: most rows of a batch.
        max_batch_tokens: most ids of a batch, prompts, replies and padding together; None sets no limit.
        window: most tokens of prompt plus output; default what the model's config says.

    Raises:
        ConfigError: a limit is below 1, or neither model nor tokenizer names an end token.
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
                f"max_batch={max_batch!r} and max_batch_tokens={max_batch_tokens!r} leave room for no request: "
                f"give 1 or more"
            )
        self.window = window_of(model) if window is None else window
        self._model = model
        self._ends = end_ids(model, tokenizer)
        self._pad = pad_id(tokenizer, self._ends)
        self._max_batch, self._max_batch_tokens = max_batch, max_batch_tokens
        self._batcher: Batcher | None = None
        self._drafts = verifies(model)

    @contextmanager
    def generating(self) -> Generator[None]:
        """Serves requests inside the block, in eval mode; the weights must not change.

        Its end fails the requests that are left, and blocks for as long as a step takes.

        Raises:
            ConfigError: the block is open already.
        """
        if self._batcher is not None:
            raise ConfigError("the sampler generates already: end that block first")
        with generation_settings(self._model, ends=self._ends, pad=self._pad):
            self._batcher = batcher = Batcher(
                self.serve, max_batch=self._max_batch, max_tokens=self._max_batch_tokens
            )
            try:
                yield
            finally:
                self._batcher = None
                # A block that nobody ends is collected as garbage anywhere, on an event loop too: it may not wait.
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
        """Draws at most `max_tokens` ids, > 0, that continue P ids, P > 0: both within the window together.

        At temperature 0 the likeliest id is taken, and log-probs are those of temperature 1. A seed makes the draw
        repeatable. `stopped` is asked, in the thread that draws, whether the ids so far end the reply.

        Raises:
            ModelError: the model failed, or serves no requests now.
            DeviceFull: the prompt alone is too long for the device.
        """
        if self._batcher is None:
            raise make_closed_error()
        request = Request(prompt_ids, max_tokens, sampling, seed, stopped)
        self._batcher.put(request)
        return await asyncio.wrap_future(request.reply)

    def serve(self, batch: Sequence[Request]) -> list[Sampled | Exception]:
        """One batch of one sampling, from prompts to replies. Blocks."""
        drawn = (
            draw_with_drafts(self._model, batch, self._ends, self._pad)
            if self._drafts
            else self._generate(batch)
        )
        return [
            read_drawn(ids, logprobs, request.max_tokens, self._ends)
            for request, (ids, logprobs) in zip(batch, drawn, strict=True)
        ]

    def _generate(self, batch: Sequence[Request]) -> list[tuple[list[int], list[float]]]:
        """As `draw_with_drafts`, from any model."""
        inputs = left_padded(
            [request.prompt_ids for request in batch], self._pad, self._model.device
        )
        drawing = Drawing(batch, self._ends)
        generate: Any = self._model.generate
        ids_BS = generate(
            **inputs,
            max_new_tokens=max(request.max_tokens for request in batch),
            logits_processor=LogitsProcessorList([drawing]),
        )
        return drawing.read_rows(ids_BS[:, inputs["input_ids"].shape[1] :])
