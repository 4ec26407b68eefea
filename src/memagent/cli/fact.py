"""`memagent show --fact`: when a text entered the memory, whether the chunk has it, and when it was lost."""

from __future__ import annotations

import unicodedata
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from memagent.cli.exits import Outcome
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.events import Answered, ChunkRead, MemoryUpdated, Rereading, memory_after
from memagent.texts import plural

if TYPE_CHECKING:
    from memagent.runstore import RunRecord, RunStore

MOST = 12
"""Maximum chunks listed on a line."""


@dataclass
class Trace:
    """Where a text was in one question's memory."""

    question: int
    stays: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Each stay in the memory: its first `chunk` (with `start`, `end`, `place`), and the chunk that `lost` it;
    `chunk` is None if the text was recalled."""
    chunks: list[int] = field(default_factory=list[int])
    """Chunks that contain the text, or its end."""
    in_answer: bool | None = None
    """Whether the answer contains the text; None if there is no answer yet."""


def fold(text: str) -> str:
    """Removes differences of case, line breaks and accents' encoding, and what neutralising inserted."""
    return unicodedata.normalize("NFC", " ".join(text.replace("\u2060", "").split()).casefold())


def trace(store: RunStore, run_id: str, question: int, *facts: str) -> Trace:
    """Searches a run's events and chunks, one at a time, for a text or one of several."""
    result, needles, is_in = Trace(question), list(map(fold, facts)), False
    span, last_text, memory = None, "", ""

    def count(text: str) -> int:
        return sum(map(fold(text).count, needles))

    for event in store.events(run_id):
        if isinstance(event, ChunkRead):
            span, body = event, store.effect(run_id, f"chunk-{event.chunk}") or {}
            text = body.get("text", "")
            result.chunks += [event.chunk] if count(last_text + text) > count(last_text) else []
            last_text = text
        elif isinstance(event, MemoryUpdated | Rereading) and event.question == question:
            memory = memory_after(event, memory)
            if bool(count(memory)) == is_in:
                continue
            is_in, chunk = not is_in, None if isinstance(event, Rereading) else event.chunk
            if not is_in:
                result.stays[-1]["lost"] = chunk
                continue
            place = {"start", "end", "place"} if span and span.chunk == chunk else set[str]()
            fields = {} if span is None else span.model_dump(include=place)
            result.stays.append({"chunk": chunk, **fields, "lost": None})
        elif isinstance(event, Answered) and event.question == question:
            result.in_answer = count(event.answer) > 0
    return result


def show_fact(
    store: RunStore, record: RunRecord, chosen: list[int], fact: str, outcome: Outcome
) -> None:
    """Prints where a text was, for each question."""
    traces = [trace(store, record.id, question, fact) for question in chosen]
    if outcome.display is Display.JSON:
        outcome.tell({"run_id": record.id, "fact": fact, "questions": list(map(asdict, traces))})
        return
    paper, books = outcome.paper, Tally.of(store, record).notebooks
    for trail in traces:
        if len(traces) > 1:
            paper.line((f"question {trail.question}", "bold cyan"))
        part, chunk_count = trail.in_answer is None, books[trail.question].read
        still = f"still there at chunk {chunk_count - 1}" if part else "stays to the end"
        for stay in trail.stays:
            span = f" (characters {stay['start']:,} to {stay['end']:,})" if "start" in stay else ""
            span += f", {stay['place']}" if stay.get("place") else ""
            note = "" if stay["chunk"] in trail.chunks else "; not word for word in that chunk"
            end = still if stay["lost"] is None else f"lost with chunk {stay['lost']}"
            course = f" with chunk {stay['chunk']}{span}{note}"
            course = ", recalled" if stay["chunk"] is None else course
            paper.line(("enters the memory", "green"), f"{course}; {end}")
        if not trail.stays:
            paper.line(("never in the memory", "yellow"))
        numbers = ", ".join(map(str, trail.chunks[:MOST])) + (" …" if trail.chunks[MOST:] else "")
        absence = f"not in the {plural(chunk_count, 'chunk')} read{' so far' if part else ''}"
        paper.line(f"in the document: {f'chunk {numbers}' if numbers else absence}")
        verdict = "yes" if trail.in_answer else "no"
        paper.line("no answer yet" if part else f"in the answer: {verdict}")
