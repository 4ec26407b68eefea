"""Tests whether answers come from memories: asks the same questions with no memory, and with another sample's."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memagent.errors import ConfigError
from memagent.events import memory_after
from memagent.messages import ChatRequest
from memagent.prompts import PromptSet
from memagent.tasks import SCORERS
from memagent.tasks.statistics import estimate
from memagent_bench.diagnose.diagnosis import open_runs
from memagent_bench.record import Record
from memagent_bench.records import read_records
from memagent_bench.systems.base import Status
from memagent_engines.transformers.model import TransformersModel
from memagent_nano.lessons import GREEDY, PROMPTS

SYSTEM = "memory"
OWN, BLANK, SWAPPED = "own", "blank", "swapped"
ROOM = 32
"""Maximum tokens of an answer: two names and a number take fewer."""
Cell = tuple[str, int]
"""Task and length."""


@dataclass(frozen=True)
class ControlQuestion:
    """A question and its right answer."""

    question: str
    outputs: tuple[str, ...]
    scorer: str
    """One of `memagent.tasks.SCORERS`."""


@dataclass(frozen=True)
class SampleMemory:
    """A sample's record and its last memory."""

    record: Record
    memory: str


def controls(folder: Path, policy: Path) -> dict[Cell, dict[str, dict[str, float]]]:
    """Asks the questions of a benchmark's folder again, greedily. Blocks.

    Args:
        folder: what `memagent-bench notes --systems memory` wrote.
        policy: folder of the policy that answered; its prompts are worded as in the course.

    Returns:
        By task and length, then by memory (`own`: the last of its run; `blank`: none; `swapped`: the last one of
        another sample of the cell): mean score, its 95% interval, and n.

    Raises:
        ConfigError: the folder has fewer than two answered samples of a cell.
        StoreError: it has no records or no runs.
    """
    shares: dict[Cell, dict[str, dict[str, float]]] = {}
    for cell, held in sorted(_read_held(folder).items()):
        if len(held) < 2:
            raise ConfigError(
                f"{cell[0]} at {cell[1]} in {str(folder)!r} has {len(held)} answered sample: "
                f"memories are swapped between at least 2"
            )
        memories = {
            OWN: [sample.memory for sample in held],
            BLANK: [""] * len(held),
            SWAPPED: [sample.memory for sample in (*held[1:], held[0])],
        }
        questions = [
            ControlQuestion(sample.record.question, sample.record.outputs, sample.record.scorer)
            for sample in held
        ]
        shares[cell] = asyncio.run(score_memories(policy, questions, memories))
    return shares


def _read_held(folder: Path) -> dict[Cell, list[SampleMemory]]:
    """Reads the answered samples of each cell, in order."""
    answered = [
        record
        for record in read_records(folder)
        if record.system == SYSTEM and record.status is Status.ANSWERED
    ]
    cells: defaultdict[Cell, list[SampleMemory]] = defaultdict(list)
    with open_runs(folder) as store:
        for record in sorted(answered, key=lambda record: record.index):
            memory = ""
            for event in store.events(record.run_id or ""):
                memory = memory_after(event, memory)
            cells[record.task, record.length].append(SampleMemory(record, memory))
    return cells


async def score_memories(
    policy: Path, questions: Sequence[ControlQuestion], memories: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Returns the mean score of greedy answers from each list of memories, one per question; 95% interval, and n."""
    model, prompts = TransformersModel(policy), PromptSet.load(PROMPTS)

    async def score_answer(sample: ControlQuestion, memory: str) -> float:
        text = memory or prompts.empty_memory
        request = ChatRequest(
            messages=prompts.render("answer", question=sample.question, memory=text),
            max_tokens=ROOM,
            sampling=GREEDY,
            kind="answer",
            parts={"question": sample.question, "memory": text},
        )
        reply = await model.complete(request)
        return SCORERS[sample.scorer](reply.text, sample.outputs)

    try:
        return {
            label: _share(await asyncio.gather(*map(score_answer, questions, of_label)))
            for label, of_label in memories.items()
        }
    finally:
        await model.aclose()


def _share(scores: Sequence[float]) -> dict[str, float]:
    share = estimate([scores])
    return {"mean": share.mean, "low": share.low, "high": share.high, "n": share.n}
