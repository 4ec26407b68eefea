"""Left-padded batches through transformers' `generate`: for any causal model on any device."""

# ruff: noqa: N806  (names of tensors end in their dimensions)

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from transformers import LogitsProcessorList

from memagent.errors import ConfigError
from memagent.messages import Sampling
from memagent.models.transformers.batching import Batcher, Request
from memagent.models.transformers.drafts import Drafts, Verified, verifies
from memagent.models.transformers.drawing import Drawing, generation_settings, left_padded
from memagent.models.transformers.sampler import (
    Sampled,
    closed,
    end_ids,
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
        self.drafts = Drafts() if verifies(model) else None
        """Guesses greedy replies where that changes none: a model that keeps its memory as it was repeats it, and a
        guess is checked in the pass that reads the prompt; writing it takes one pass an id."""

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
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        """Draws at most `max_tokens` ids, > 0, that continue P ids, P > 0: both within the window together.

        At temperature 0 the likeliest id is taken, and log-probs are those of temperature 1. A seed makes the draw
        repeatable.

        Raises:
            ModelError: the model failed, or serves no requests now.
            DeviceFull: the prompt alone is too long for the device.
        """
        if self._batcher is None:
            raise closed()
        request = Request(prompt_ids, max_tokens, sampling, seed)
        self._batcher.put(request)
        return await asyncio.wrap_future(request.reply)

    def serve(self, batch: Sequence[Request]) -> list[Sampled | Exception]:
        """One batch of one sampling, from prompts to replies. Blocks."""
        prompts = [request.prompt_ids for request in batch]
        drafts = None if batch[0].sampling.temperature else self.drafts
        guesses = [drafts.guess(r.prompt_ids, r.max_tokens - 1) for r in batch] if drafts else []
        if any(guesses):  # what is right of a guess is taken, the rest is generated
            verified = Verified(self._model, prompts, guesses, self._pad)
            drawn = verified.drawn
            open_rows = [
                row
                for row, (ids, _) in enumerate(drawn)
                if ids[-1] not in self._ends and len(ids) < batch[row].max_tokens
            ]
            inputs = verified.rest(open_rows) if open_rows else {}
        else:
            drawn = [(list[int](), list[float]()) for _ in batch]
            open_rows = list(range(len(batch)))
            inputs = left_padded(prompts, self._pad, self._model.device)
        if open_rows:
            limits = [batch[row].max_tokens - len(drawn[row][0]) for row in open_rows]
            more = self._generated([batch[row] for row in open_rows], limits, inputs)
            for row, (ids, logprobs) in zip(open_rows, more, strict=True):
                drawn[row] = (drawn[row][0] + ids, drawn[row][1] + logprobs)
        replies = list[Sampled | Exception]()
        for request, (ids, logprobs) in zip(batch, drawn, strict=True):
            places = (at for at, i in enumerate(ids[: request.max_tokens]) if i in self._ends)
            end = (
                next(places, request.max_tokens - 1) + 1
            )  # what stands behind it was not asked for
            reply = read_drawn(ids[:end], logprobs[:end], self._ends)
            replies.append(reply)
            # A reply that nobody waits for any more was stopped in the midst of it.
            if drafts and isinstance(reply, Sampled) and not request.reply.done():
                drafts.note([i for i in reply.ids if i not in self._ends])
        return replies

    def _generated(
        self, batch: Sequence[Request], limits: Sequence[int], inputs: dict[str, Any]
    ) -> list[tuple[list[int], list[float]]]:
        """At most `limits` ids for each row, and their log-probabilities; behind an end there may be more."""
        width = inputs["input_ids"].shape[1]
        drawing = Drawing(batch, limits, self._ends[0])
        generate: Any = self._model.generate
        ids_BT = generate(
            **inputs,
            max_new_tokens=max(limits),
            logits_processor=LogitsProcessorList([drawing]),
        )[:, width:]
        return list(zip(ids_BT.tolist(), drawing.logprobs_BT().tolist(), strict=True))
