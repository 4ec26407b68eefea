"""What draws tokens from the policy: the protocol that all engines follow."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Protocol

from memagent.messages import Sampling
from memagent.models.transformers.batching import Request
from memagent.models.transformers.padded import PaddedSampler
from memagent.models.transformers.sampler import Sampled
from memagent_train.rollout.meter import Meter


class Sampler(Protocol):
    """An engine that draws from the policy. One that knows when it computes says so to a `meter` of its own."""

    window: int
    """Most tokens of prompt plus output."""

    def generating(self) -> AbstractContextManager[None]:
        """Serves requests inside the block, in which the weights must not change.

        The module is in eval mode inside, and as it was before after it. The block ends when the engine has
        stopped; requests that are left fail. Blocks for as long as a step of the engine takes.

        Raises:
            ConfigError: the block is open already.
        """
        ...

    async def sample(
        self,
        prompt_ids: Sequence[int],
        *,
        max_tokens: int,
        sampling: Sampling,
        seed: int | None,
    ) -> Sampled:
        """Draws a continuation.

        Args:
            prompt_ids: P ids, P > 0; with `max_tokens` within the window.
            max_tokens: most ids to draw, > 0.
            sampling: at temperature 0 the likeliest id is taken, and log-probs are those of temperature 1.
            seed: makes the draw repeatable where the engine can do that; None draws afresh.

        Raises:
            ModelError: the engine failed, or serves no requests now.
            DeviceFull: the prompt alone is too long for the device.
        """
        ...


class MeteredSampler(PaddedSampler):
    """A padded sampler whose meter runs while a batch is served."""

    @cached_property
    def meter(self) -> Meter:
        """What it did."""
        return Meter()

    def serve(self, batch: Sequence[Request]) -> list[Sampled | Exception]:
        """One batch, from prompts to replies. Blocks."""
        with self.meter.computing():
            return super().serve(batch)
