"""Policies for the tests: tiny models with random weights, a real tokenizer, and forward passes to compare with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.models.transformers.policies import WINDOW

from memagent.messages import FinishReason, Sampling
from memagent.tasks import Sample
from memagent_engines.transformers.sampler import Sampled
from memagent_train.rollouts import Rollout, Status


def sample(index: int = 0, context: str = "", question: str = "Who came?") -> Sample:
    text = context or "The prince left for Moscow and nobody was sad about it. " * 30
    return Sample(
        task="test",
        index=index,
        length=4096,
        tokens=400,
        context=text,
        question=question,
        outputs=("the prince",),
        generate=8,
    )


class Echoes:
    """A sampler without a model: draws ids at random, after as many turns of the loop as it is told to."""

    window = WINDOW

    def __init__(self, *, ids: Sequence[int] = range(300, 1900), pause: float = 0.0) -> None:
        self.ids, self.pause = list(ids), pause
        self.prompts: list[tuple[int, ...]] = []
        self.seeds: list[int | None] = []
        self.drawn: list[tuple[int, ...]] = []
        self.samplings: list[Sampling] = []
        self._random = random.Random(7)

    async def sample(
        self, prompt_ids: Sequence[int], *, max_tokens: int, sampling: Sampling, seed: int | None
    ) -> Sampled:
        import asyncio

        await asyncio.sleep(self.pause)
        self.prompts.append(tuple(prompt_ids))
        self.seeds.append(seed)
        self.samplings.append(sampling)
        length = self._random.randint(2, max(2, max_tokens))
        ids = tuple(self._random.choices(self.ids, k=length))[:max_tokens]
        ended = len(ids) < max_tokens
        ids = (*ids, 2) if ended else ids
        self.drawn.append(ids)
        logprobs = tuple(-self._random.random() for _ in ids)
        return Sampled(ids, logprobs, FinishReason.STOP if ended else FinishReason.LENGTH)

    def generating(self) -> Any:
        from contextlib import nullcontext

        return nullcontext()


class Paid:
    """A verifier that pays every rollout the same."""

    def __init__(self, reward: float = 1.0) -> None:
        self.reward = reward
        self.seen: list[Rollout] = []

    async def verify(self, rollout: Rollout) -> Rollout:
        self.seen.append(rollout)
        return replace(rollout, status=Status.SCORED, reward=self.reward)
