"""Uninformative rewards: whatever a training learns from them isn't due to its rewards."""

import random

from memagent.tasks import Sample


async def toss(answer: str | None, sample: Sample) -> float:
    """0 or 1 with equal probability, whether the answer is right or not; always the same for an answer to a sample."""
    return float(random.Random(f"{sample.index}:{answer}").random() < 0.5)
