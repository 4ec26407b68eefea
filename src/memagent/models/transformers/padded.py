"""Left-padded batches through transformers' `generate`: for any causal model on any device."""

# ruff: noqa: N806  (names of tensors end in their dimensions)

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from transformers import LogitsProcessorList, StoppingCriteriaList

from memagent.errors import ConfigError, ModelError
from memagent.messages import Sampling
from memagent.models.transformers.batching import Batcher, Request, closed
from memagent.models.transformers.drafts import Drafts
from memagent.models.transformers.drawing import Drawing, RowLimits
from memagent.models.transformers.meter import Meter
from memagent.models.transformers.sampler import (
    Sampled,
    end_ids,
    generation_settings,
    pad_id,
    read_drawn,
    window_of,
)
from memagent.models.transformers.verified import Verified, verifies

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Drawn = tuple[list[int], list[float]]
"""Ids and their log-probabilities, as many; behind an end there may be more."""


class PaddedSampler:
    """Gathers requests into batches and generates each batch to its end, in a thread of its own.

    What is drawn for a request depends on the weights, the prompt and the seed, and on the rest of its batch only as
    far as floating point does.

    Greedy replies are guessed from earlier ones where that changes none (see `verifies`): a model that keeps its memory
    as it was repeats it, and a guess is checked in the pass that reads the prompt; writing it takes one pass an id.

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
        self.meter = Meter()
        self._model = model
        self._ends = end_ids(model, tokenizer)
        self._pad = pad_id(tokenizer, self._ends)
        self._max_batch, self._max_batch_tokens = max_batch, max_batch_tokens
        self._batcher: Batcher | None = None
        self._earlier = Drafts() if verifies(model) else None

    @contextmanager
    def generating(self) -> Generator[None]:
        """Serves requests inside the block; see `Sampler.generating`."""
        if self._batcher is not None:
            raise ConfigError("the sampler generates already: end that block first")
        with generation_settings(self._model, ends=self._ends, pad=self._pad):
            self._batcher = batcher = Batcher(
                self._serve,
                max_batch=self._max_batch,
                max_tokens=self._max_batch_tokens,
                meter=self.meter,
            )
            wait = True
            try:
                yield
            except GeneratorExit:
                # Nobody ended the block. Garbage is collected anywhere, on an event loop too: it may not wait.
                wait = False
                raise
            finally:
                self._batcher = None
                batcher.close(wait=wait)

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        max_tokens: int,
        sampling: Sampling,
        seed: int | None,
    ) -> Sampled:
        """Draws a continuation; see `Sampler.sample`."""
        if self._batcher is None:
            raise closed()
        request = Request(prompt_ids, max_tokens, sampling, seed)
        self._batcher.put(request)
        return await asyncio.wrap_future(request.reply)

    def _serve(
        self, batch: Sequence[Request], closing: Callable[[], bool]
    ) -> list[Sampled | Exception]:
        """One batch, from prompts to replies. Blocks."""
        earlier = None if batch[0].sampling.temperature else self._earlier
        drafts = (
            [earlier.guess(r.prompt_ids, r.max_tokens - 1) for r in batch]
            if earlier is not None
            else []
        )
        if any(drafts):
            drawn = self._checked(batch, drafts, closing)
        else:
            drawn = self._generated(batch, [0] * len(batch), self._prompts(batch), closing)
        limits = [request.max_tokens for request in batch]
        replies = [self._read(*row, limit) for row, limit in zip(drawn, limits, strict=True)]
        for request, reply in zip(batch, replies, strict=True):
            dropped = closing() or request.reply.cancelled()  # in the midst of it
            if earlier is not None and isinstance(reply, Sampled) and not dropped:
                earlier.note([i for i in reply.ids if i not in self._ends])
        return replies

    def _checked(
        self,
        batch: Sequence[Request],
        drafts: Sequence[Sequence[int]],
        closing: Callable[[], bool],
    ) -> list[Drawn]:
        """Replies of which some were guessed: what is right of a guess is taken, the rest is generated."""
        prompts = [request.prompt_ids for request in batch]
        verified = Verified(self._model, prompts, drafts, self._pad)
        drawn = list(zip(verified.ids, verified.logprobs, strict=True))
        begun = [len(ids) for ids, _ in drawn]
        rows = [row for row, (ids, _) in enumerate(drawn) if ids[-1] not in self._ends]
        rows = [row for row in rows if begun[row] < batch[row].max_tokens]
        if rows:
            inputs = verified.rest(rows)
            requests, lengths = [batch[row] for row in rows], [begun[row] for row in rows]
            more = self._generated(requests, lengths, inputs, closing)
            for row, (ids, logprobs) in zip(rows, more, strict=True):
                drawn[row] = (drawn[row][0] + ids, drawn[row][1] + logprobs)
        return drawn

    def _prompts(self, batch: Sequence[Request]) -> dict[str, Any]:
        """What `generate` begins with: the prompts, padded on the left."""
        width = max(len(request.prompt_ids) for request in batch)
        gaps = [width - len(request.prompt_ids) for request in batch]
        ids = [[self._pad] * gap + list(r.prompt_ids) for gap, r in zip(gaps, batch, strict=True)]
        mask = [[0] * gap + [1] * (width - gap) for gap in gaps]
        device = self._model.device
        return {
            "input_ids": torch.tensor(ids, device=device),
            "attention_mask": torch.tensor(mask, device=device),
        }

    def _generated(
        self,
        batch: Sequence[Request],
        begun: Sequence[int],
        inputs: dict[str, Any],
        closing: Callable[[], bool],
    ) -> list[Drawn]:
        """What `generate` draws behind its inputs, of replies of which so many ids are there already."""
        width = inputs["input_ids"].shape[1]
        limits = [request.max_tokens - there for request, there in zip(batch, begun, strict=True)]
        drawing = Drawing(batch[0].sampling, [request.seed for request in batch])
        stopping = RowLimits(
            limits, width, lambda: [closing() or request.reply.cancelled() for request in batch]
        )
        generate: Any = self._model.generate
        ids_BT = generate(
            **inputs,
            max_new_tokens=max(limits),
            logits_processor=LogitsProcessorList([drawing]),
            stopping_criteria=StoppingCriteriaList([stopping]),
        )[:, width:]
        return list(zip(ids_BT.tolist(), drawing.logprobs_BT().tolist(), strict=True))

    def _read(self, ids: list[int], logprobs: list[float], limit: int) -> Sampled | Exception:
        """What one row drew, without what stands behind its end."""
        places = (place for place, i in enumerate(ids[:limit]) if i in self._ends)
        length = next(places, limit - 1) + 1
        try:
            return read_drawn(ids[:length], logprobs[:length], self._ends)
        except ModelError as error:
            return error
