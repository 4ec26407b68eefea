"""Draws ids within transformers' `generate`, keeping only their log-probabilities."""

# ruff: noqa: N803, N806  (names of tensors end in their dimensions)

import random
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessor, PreTrainedModel

from memagent_engines.transformers.batching import Request


@contextmanager
def generation_settings(
    model: PreTrainedModel, *, ends: Sequence[int], pad: int
) -> Generator[None]:
    """Prepares a module for drawing, with end and padding ids; restores it afterwards.

    Uses eval mode, since dropout would give another model's log-probs, and a generation config without the model's
    settings, since a repetition penalty, say, would draw from another distribution than the one being trained.
    """
    training = [module for module in model.modules() if module.training]
    config = model.generation_config
    model.eval()
    model.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=list(ends), pad_token_id=pad, use_cache=True
    )
    try:
        yield
    finally:
        model.generation_config = config
        for module in training:
            module.training = True


def pad_ids(
    rows: Sequence[Sequence[int]], pad: int, device: torch.device, side: Literal["left", "right"]
) -> dict[str, torch.Tensor]:
    """Returns `(B, S)` ids of B rows, and their attention mask."""
    ids = [torch.tensor(row, dtype=torch.long) for row in rows]
    parts = {"input_ids": (ids, pad), "attention_mask": ([torch.ones_like(row) for row in ids], 0)}
    return {
        name: pad_sequence(part, True, value, side).to(device)
        for name, (part, value) in parts.items()
    }


class Drawing(LogitsProcessor):
    """The last logits processor: draws one id per row, and leaves `generate` only that choice.

    Each row draws from a separate stream (seeded, or None), so what is drawn from given logits does not depend on the
    other rows. Of a step's `(B, V)` log-probabilities only those of the drawn ids are kept.
    Finished rows get an end token, with which `generate` ends a row.
    """

    def __init__(self, batch: Sequence[Request], ends: Sequence[int]) -> None:
        self._batch, self._ends = batch, ends
        self._lengths = [0] * len(batch)
        self._streams = [random.Random(request.seed) for request in batch]
        self._steps: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Draws; `(B, V)` scores of one step become 0 for the drawn id and -inf for the others."""
        temperature, top_p = self._batch[0].sampling.temperature, self._batch[0].sampling.top_p
        logprobs_BV = torch.log_softmax(scores / (temperature or 1.0), dim=-1)
        if temperature:
            uniforms_B = uniform(stream.random() for stream in self._streams)
            chosen_B1 = draw(logprobs_BV, top_p, uniforms_B.to(scores.device))
        else:
            chosen_B1 = scores.argmax(dim=-1, keepdim=True)
        over_B1 = torch.tensor(
            [[is_over] for is_over in self._over(input_ids)], device=scores.device
        )
        chosen_B1 = chosen_B1.masked_fill(over_B1, self._ends[0])
        self._steps.append(logprobs_BV.gather(-1, chosen_B1))
        return torch.full_like(scores, -torch.inf).scatter_(-1, chosen_B1, 0.0)

    def _over(self, input_ids: torch.Tensor) -> list[bool]:
        """Returns which rows have ended: what is drawn for them isn't part of the reply."""
        step = len(self._steps)
        said_BT = input_ids[:, input_ids.shape[1] - step :].tolist()
        flags: list[bool] = []
        for row, (request, ids) in enumerate(zip(self._batch, said_BT, strict=True)):
            is_active = self._lengths[row] == step and (
                not ids or request.wants_more(ids, self._ends)
            )
            self._lengths[row] += is_active
            flags.append(not is_active)
        return flags

    def read_rows(self, ids_BT: torch.Tensor) -> list[tuple[list[int], list[float]]]:
        """Returns the ids of each row's reply, and their log-probabilities."""
        logprobs_BT = torch.cat(self._steps, dim=-1)
        rows = zip(self._lengths, ids_BT.tolist(), logprobs_BT.tolist(), strict=True)
        return [(ids[:length], logprobs[:length]) for length, ids, logprobs in rows]


def uniform(numbers: Iterable[Any]) -> torch.Tensor:
    """Makes a tensor of numbers from [0, 1), or lists of them; float32 would round some of them to 1."""
    return torch.tensor(list(numbers), dtype=torch.float64)


def draw(logprobs_BV: torch.Tensor, top_p: float, uniforms_B: torch.Tensor) -> torch.Tensor:
    """Returns `(B, 1)` ids: where the cumulative probabilities first exceed a uniform number from [0, 1)."""
    probs_BV = logprobs_BV.exp()
    if top_p < 1:  # the likeliest ids whose sum is at least top_p, and never fewer than one
        sorted_BV, order_BV = probs_BV.sort(dim=-1, descending=True)
        kept_BV = sorted_BV.cumsum(dim=-1) - sorted_BV < top_p
        probs_BV = probs_BV * torch.zeros_like(kept_BV).scatter_(-1, order_BV, kept_BV)
    cumulated_BV = probs_BV.double().cumsum(dim=-1)
    # Relative to the last one: the sum is only approximately 1, and less if top-p has cut.
    marks_B1 = uniforms_B.double().unsqueeze(-1) * cumulated_BV[:, -1:]
    chosen_B1 = torch.searchsorted(cumulated_BV, marks_B1, right=True)
    return chosen_B1.clamp_(max=probs_BV.shape[-1] - 1)
