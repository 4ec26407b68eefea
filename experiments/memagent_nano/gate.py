"""The first gate: how many replies to one chunk are exactly right, on lessons that no training has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from memagent.errors import ConfigError
from memagent.messages import ChatRequest, Message
from memagent.tasks.statistics import wilson
from memagent_engines.transformers.model import TransformersModel
from memagent_nano.lessons import GREEDY, Lesson, copies, memory_of, traces
from memagent_nano.sizes import Size

HELD_OUT = 5 * 10**6
"""Seed of the lessons."""
N = 1000
"""Copies, and conversations of the expert."""
FEWEST = 2
"""Conversations of a document on average, at the least."""


def gate(size: Size, policy: Path, *, n: int = N) -> dict[str, dict[str, float]]:
    """Has lessons answered greedily.

    Args:
        size: of the policy.
        policy: its folder.
        n: lessons of each kind.

    Returns:
        Kind -> share that is exactly right, with its 95% interval, and how many there were. `copy`: the memory stays as
        it is; `change`: it does not; `answer`. With `read-` in front: of an expert that keeps what is relevant, in
        documents as training has them.

    Raises:
        ConfigError: there is no policy.
    """
    if not (policy / "config.json").is_file():
        raise ConfigError(f"there is no policy in {str(policy)!r}: train it first")
    read = traces(size, "relevant", policy, -(-n // FEWEST), HELD_OUT)
    lessons = [("", lesson) for lesson in copies(size, n, HELD_OUT)]
    lessons += [("read-", lesson) for lesson in islice(read, n)]
    right: dict[str, list[bool]] = {}
    for kind, was in asyncio.run(_answer_lessons(policy, size, lessons)):
        right.setdefault(kind, []).append(was)
    return {kind: _share(found) for kind, found in sorted(right.items())}


async def _answer_lessons(
    policy: Path, size: Size, lessons: Sequence[tuple[str, Lesson]]
) -> list[tuple[str, bool]]:
    model = TransformersModel(policy)

    async def answer_lesson(prefix: str, lesson: Lesson) -> tuple[str, bool]:
        said, wanted = lesson
        request = ChatRequest(
            messages=(Message(role="user", content=said),),
            max_tokens=size.memory_tokens + 8,
            sampling=GREEDY,
        )
        reply = await model.complete(request)
        return prefix + _kind(said, wanted), reply.text.strip() == wanted

    try:
        return list(await asyncio.gather(*(answer_lesson(*lesson) for lesson in lessons)))
    finally:
        await model.aclose()


def _kind(said: str, wanted: str) -> str:
    """What a lesson asks for."""
    if said.rstrip().endswith("Answer:"):
        return "answer"
    return "copy" if memory_of(said) == wanted else "change"


def _share(found: list[bool]) -> dict[str, float]:
    low, high = wilson(sum(found) / len(found), len(found))
    return {"share": sum(found) / len(found), "low": low, "high": high, "n": len(found)}
