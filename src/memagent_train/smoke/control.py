"""Uninformative rewards: whatever a training learns with them isn't due to its rewards."""

import random

from memagent.tasks import Sample


async def toss(answer: str | None, sample: Sample) -> float:
    """Returns 0 or 1 with equal probability, right answer or not; always the same for an answer to a sample."""
    return float(random.Random(f"{sample.index}:{answer}").random() < 0.5)
