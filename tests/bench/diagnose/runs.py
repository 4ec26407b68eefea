"""Real runs of scripted models, with the records that a benchmark would make of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import fakes

from memagent import MemoryAgent, ScriptedModel
from memagent.tasks import SCORERS, Evidence
from memagent_bench.folder import RUNS
from memagent_bench.record import Record
from memagent_bench.records import RecordFile
from memagent_bench.systems.base import Status

CHUNK = 400
"""Characters of a chunk, which are bytes here, and tokens."""


def document(chunks: int, *facts: tuple[int, str]) -> str:
    """A text of so many chunks, with facts written over it, each with the character that it begins with."""
    text = ("The grass is green. " * (chunks * CHUNK // 20 + 1))[: chunks * CHUNK]
    for at, fact in facts:
        text = text[:at] + fact + text[at + len(fact) :]
    return text


def place(at: int, fact: str, *notes: str, supports: Sequence[int] = (0,)) -> Evidence:
    """Where a fact stands."""
    return Evidence(start=at, end=at + len(fact), notes=notes, supports=tuple(supports))


async def read(
    folder: Path, text: str, memories: Sequence[str], answer: str, run_id: str, **settings: Any
) -> None:
    """One run in the folder's store: a reply for each chunk, and the answer."""
    agent = MemoryAgent(
        ScriptedModel([*memories, answer], window=4096),
        store=folder / RUNS,
        chunk_tokens=CHUNK,
        cuts="exact",
        degenerate="take",
        **settings,
    )
    async with agent:
        result = await agent.aask(text, "What is the number?", run_id=run_id)
    assert result.answer == answer
    assert result.chunks == len(memories)


def record(answer: str | None, outputs: Sequence[str], run_id: str | None, **fields: Any) -> Record:
    """What a benchmark would write of a sample."""
    scorer: str = fields.get("scorer", "string_match_all")
    given: dict[str, Any] = {
        "answer": answer,
        "outputs": tuple(outputs),
        "run_id": run_id,
        "score": None if answer is None else SCORERS[scorer](answer, outputs),
        "status": Status.STOPPED if answer is None else Status.ANSWERED,
    }
    return fakes.record(**(given | fields))


def keep(folder: Path, *records: Record) -> None:
    """Writes them as a benchmark does."""
    file = RecordFile(folder)
    for one in records:
        file.append(one)
    file.close()
