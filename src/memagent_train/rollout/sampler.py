"""Draws tokens from the policy: the protocol of all engines."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Protocol

from memagent.messages import Sampling
from memagent_engines.transformers.batching import Request
from memagent_engines.transformers.padded import PaddedSampler
from memagent_engines.transformers.sampler import Sampled
from memagent_train.rollout.meter import Meter


class Sampler(Protocol):
    """An engine that draws from the policy. If it knows when it computes, it has a `meter`."""

    window: int
    """Maximum tokens of prompt plus output."""

    def generating(self) -> AbstractContextManager[None]:
        """Serves requests inside the block, in which the weights must not change.

        Inside, the module is in eval mode, which is restored afterwards. The block ends when the engine has
        stopped; remaining requests fail. Blocks for up to one engine step.

        Raises:
            ConfigError: the block is already open.
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
            prompt_ids: P ids (P > 0); with `max_tokens` they must fit the window.
            max_tokens: maximum ids to draw (> 0).
            sampling: at temperature 0 the likeliest id is taken, and log-probs are those of temperature 1.
            seed: makes the draw repeatable if the engine supports it; None: random.

        Raises:
            ModelError: the engine failed, or isn't serving requests.
            DeviceFull: the prompt alone is too long for the device.
        """
        ...


class MeteredSampler(PaddedSampler):
    """A padded sampler whose meter runs while a batch is served."""

    @cached_property
    def meter(self) -> Meter:
        """Utilisation of the sampler."""
        return Meter()

    def serve(self, batch: Sequence[Request]) -> list[Sampled | Exception]:
        """Generates one batch. Blocks."""
        with self.meter.computing():
            return super().serve(batch)
