"""Map-reduce: reads each chunk by itself, then reads the notes again until they fit one prompt."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memagent.budget import JOINT_SLACK
from memagent.chunking import Chunk, chunks
from memagent.documents import open_document
from memagent.errors import WindowTooSmall
from memagent.memory.plan import MemoryPlan
from memagent.tasks import Sample
from memagent_bench.systems.asking import Asker, agent_of
from memagent_bench.systems.base import Outcome, Setting

BETWEEN = "\n\n"
"""Separator of two notes."""
NOTE_SLACK = 4
"""Extra tokens that a note may take when joined to others: two at each end, as for `JOINT_SLACK`."""
Note = tuple[str, int]
"""Text and its tokens."""


class MapReduce:
    """Reads the chunks of the document concurrently, each with the update prompt and an empty memory.

    Each chunk yields a note of at most the memory's tokens. While the notes don't fit the memory field of the answer
    prompt, as many at a time as fit a chunk are read again in the same way. A failed call or an unusable reply ends
    the sample: no note is left out. Calls in flight at that point are not in its usage.

    The number of calls is known beforehand if the notes fit at once, however long they are; otherwise
    the prediction is the number for notes of full length.
    """

    name = "map-reduce"

    def __init__(self, setting: Setting) -> None:
        self._model = setting.model
        self._agent = agent_of(setting, gate="off")

    async def answer(self, sample: Sample, run_id: str) -> Outcome:
        """See `System.answer`.

        Raises:
            WindowTooSmall: the notes don't fit at once, and no two of them fit a chunk.
        """
        plan = await self._agent.plan((sample.question,))
        sizes = await plan.counting(Sizes.of, plan)
        stream = chunks(open_document(sample.context), plan.chunker(), run=plan.counting)
        read = [chunk async for chunk in stream]
        calls = sizes.bound_calls(len(read))
        tokens = sum(chunk.tokens for chunk in read)
        frame = plan.frames["update"] + plan.question_tokens[0] + plan.empty_memory_tokens
        maps = len(read) * (frame + JOINT_SLACK) + tokens
        joins = (calls - len(read) - 1) * plan.budget.prompt
        answer = plan.budget.window - plan.budget.output
        outcome = Outcome(
            answer=None,
            chunks=len(read),
            predicted_calls=calls,
            predicted_tokens=maps + joins + answer + calls * plan.budget.output,
        )
        asker = Asker(plan, self._model)
        return await asker.conclude(_answer(asker, sizes, read), outcome)


@dataclass(frozen=True)
class Sizes:
    """Token sizes of notes, and of the room for them."""

    joint: int
    """Extra tokens of each note that is joined to others."""
    note: int
    """Tokens of the longest note, with its joint."""
    chunk: int
    """Room for notes that are read again together."""
    field: int
    """Room for notes in the answer prompt."""

    @classmethod
    def of(cls, plan: MemoryPlan) -> Sizes:
        """Computes the sizes of a plan. Blocks: it counts tokens."""
        budget, question = plan.budget, plan.question_tokens[0]
        joint = plan.counter.count(BETWEEN) + NOTE_SLACK
        overhead = budget.output + plan.frames["answer"] + question + JOINT_SLACK
        return cls(joint, budget.memory + joint, budget.chunk, budget.window - overhead)

    def bound_calls(self, chunks: int) -> int:
        """Returns the calls for a number of chunks if every note has maximum length.

        Raises:
            WindowTooSmall: see `MapReduce.answer`.
        """
        calls = notes = chunks
        together = self.chunk // self.note
        while notes > max(1, self.field // self.note):
            if together < 2:
                raise WindowTooSmall(
                    f"map-reduce joins notes of up to {self.note} tokens, but a chunk of {self.chunk} can't hold "
                    f"two; use a smaller memory (--memory-tokens), or a larger chunk or window"
                )
            notes = math.ceil(notes / together)
            calls += notes
        return calls + 1

    def fit(self, notes: Sequence[Note]) -> bool:
        """Returns whether the notes fit the answer prompt."""
        return len(notes) == 1 or sum(tokens + self.joint for _, tokens in notes) <= self.field

    def groups(self, notes: Sequence[Note]) -> Iterator[list[Note]]:
        """Yields consecutive notes, as many at a time as fit a chunk."""
        group: list[Note] = []
        size = 0
        for note in notes:
            if group and size + note[1] + self.joint > self.chunk:
                yield group
                group, size = [], 0
            group.append(note)
            size += note[1] + self.joint
        yield group


async def _answer(asker: Asker, sizes: Sizes, read: Sequence[Chunk]) -> str:
    notes = await _notes(asker, [chunk.text for chunk in read], 0)
    calls = len(read)
    while not sizes.fit(notes):
        safe = asker.plan.neutraliser.safe
        groups = [safe(_join(group)) for group in sizes.groups(notes)]
        notes = await _notes(asker, groups, calls)
        calls += len(groups)
    return await asker.answer(_join(notes))


async def _notes(asker: Asker, texts: Sequence[str], first: int) -> list[Note]:
    """Returns the note of each text; the first failure cancels the others.

    Args:
        asker: makes the calls.
        texts: neutralised texts.
        first: the number of the first call.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(asker.note(text, place))
                for place, text in enumerate(texts, start=first)
            ]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _join(notes: Sequence[Note]) -> str:
    return BETWEEN.join(text for text, _ in notes)
