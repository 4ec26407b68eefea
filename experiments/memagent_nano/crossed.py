"""One policy reads and another answers: did the memories get better, or the answers from them?"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from memagent.tasks import Sample
from memagent_engines.transformers.model import TransformersModel
from memagent_nano.controls import BLANK, OWN, SWAPPED, ControlQuestion, score_memories
from memagent_nano.kept import SEED
from memagent_nano.lessons import documents, reader
from memagent_nano.sizes import Size

N = 240
"""Number of documents, equally many of each family and length."""
ELSE = "read for another question"


def cross(size: Size, writer: Path, answerer: Path, *, n: int = N) -> dict[str, dict[str, float]]:
    """Has held-out documents read by one policy, and their questions answered by another. Greedy. Blocks.

    Args:
        size: of both policies.
        writer: the folder of the policy that writes memories.
        answerer: folder of the policy that answers from them.
        n: number of documents like those of the training.

    Returns:
        Mean score, its 95% interval and n, by memory: `own`; `read for another question`: of the same document, read
        for a question about somebody not in it; `swapped`: another document's; `blank`.
    """
    samples = list(documents(size, n, SEED))
    questions = [sample.question for sample in samples]
    own_memories = asyncio.run(_memories(size, writer, samples, questions))
    other_memories = asyncio.run(_memories(size, writer, samples, [*questions[1:], questions[0]]))
    targets = [
        ControlQuestion(document.question, document.outputs, "number_match") for document in samples
    ]
    memories = {
        OWN: own_memories,
        ELSE: other_memories,
        SWAPPED: [*own_memories[1:], own_memories[0]],
        BLANK: [""] * n,
    }
    return asyncio.run(score_memories(answerer, targets, memories))


async def _memories(
    size: Size, policy: Path, samples: Sequence[Sample], questions: Sequence[str]
) -> list[str]:
    async with reader(size, TransformersModel(policy)) as agent:
        pairs = zip(samples, questions, strict=True)
        results = await asyncio.gather(
            *(agent.aask(sample.context, question) for sample, question in pairs)
        )
        return [result.memory for result in results]
