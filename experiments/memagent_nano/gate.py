"""The first gate: the share of replies to one chunk that are exactly right, on lessons that no training has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from memagent.messages import ChatRequest, Message
from memagent.tasks.statistics import wilson
from memagent_engines.transformers.model import TransformersModel
from memagent_nano.lessons import GREEDY, copies, memory_of, traces
from memagent_nano.sizes import Size

HELD_OUT = 5 * 10**6
"""Seed of the lessons."""
N = 1000
"""Number of copies, and of conversations of the expert."""
FEWEST = 2
"""Minimum of the average conversations per document."""


def gate(size: Size, policy: Path, *, n: int = N) -> dict[str, dict[str, float]]:
    """Has lessons answered greedily.

    Args:
        size: size of the policy.
        policy: its folder.
        n: lessons of each kind.

    Returns:
        Kind -> share that is exactly right, with its 95% interval, and n. `copy`: the memory is unchanged; `change`: it
        changes; `answer`. With the prefix `read-`: from an expert that keeps what is relevant, in documents like
        those of the training.
    """
    read = traces(size, "relevant", policy, -(-n // FEWEST), HELD_OUT)
    lessons = [("", lesson) for lesson in copies(size, n, HELD_OUT)]
    lessons += [("read-", lesson) for lesson in islice(read, n)]
    prompts = [prompt for _, (prompt, _) in lessons]
    replies = asyncio.run(reply_to(policy, prompts, size.memory_tokens + 8))
    right: dict[str, list[bool]] = {}
    for (prefix, (prompt, wanted)), reply in zip(lessons, replies, strict=True):
        right.setdefault(prefix + _kind(prompt, wanted), []).append(reply.strip() == wanted)
    return {kind: share_of(hits) for kind, hits in sorted(right.items())}


async def reply_to(policy: Path, prompts: Sequence[str], max_tokens: int) -> list[str]:
    """Returns the policy's greedy replies."""
    model = TransformersModel(policy)

    async def complete(prompt: str) -> str:
        message = Message(role="user", content=prompt)
        request = ChatRequest(messages=(message,), max_tokens=max_tokens, sampling=GREEDY)
        return (await model.complete(request)).text

    try:
        return list(await asyncio.gather(*map(complete, prompts)))
    finally:
        await model.aclose()


def share_of(found: Sequence[bool]) -> dict[str, float]:
    """Returns the share that is true, with its 95% interval and n."""
    n = len(found)
    share = sum(found) / n if n else 0.0
    low, high = wilson(share, n) if n else (0.0, 1.0)
    return {"share": share, "low": low, "high": high, "n": n}


def _kind(prompt: str, wanted: str) -> str:
    """Returns the kind of a lesson."""
    if prompt.rstrip().endswith("Answer:"):
        return "answer"
    return "copy" if memory_of(prompt) == wanted else "change"
