"""`memagent show --fact`: when a text entered the memory, whether the chunk says it, and when it was lost."""

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
"""Chunks listed on a line."""


@dataclass
class Trace:
    """Where a text was in one question's memory."""

    question: int
    stays: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """First chunk of each stay in the memory (`chunk`, its `start`, `end`, `place`), and with which it was `lost`;
    `chunk` is None if it was recalled."""
    chunks: list[int] = field(default_factory=list[int])
    """Chunks that have the text, or its end."""
    in_answer: bool | None = None
    """None if there is no answer yet."""


def fold(text: str) -> str:
    """A text regardless of case, line breaks, how its accents are written, and what neutralising put in."""
    return unicodedata.normalize("NFC", " ".join(text.replace("\u2060", "").split()).casefold())


def trace(store: RunStore, run_id: str, question: int, *facts: str) -> Trace:
    """Searches a run's events and chunks, one at a time, for a text or one of several."""
    found, needles, held = Trace(question), list(map(fold, facts)), False
    read, before, memory = None, "", ""

    def count(text: str) -> int:
        return sum(map(fold(text).count, needles))

    for event in store.events(run_id):
        if isinstance(event, ChunkRead):
            read, body = event, store.effect(run_id, f"chunk-{event.chunk}") or {}
            text = body.get("text", "")
            found.chunks += [event.chunk] if count(before + text) > count(before) else []
            before = text
        elif isinstance(event, MemoryUpdated | Rereading) and event.question == question:
            memory = memory_after(event, memory)
            if bool(count(memory)) == held:
                continue
            held, chunk = not held, None if isinstance(event, Rereading) else event.chunk
            if not held:
                found.stays[-1]["lost"] = chunk
                continue
            place = {"start", "end", "place"} if read and read.chunk == chunk else set[str]()
            where = {} if read is None else read.model_dump(include=place)
            found.stays.append({"chunk": chunk, **where, "lost": None})
        elif isinstance(event, Answered) and event.question == question:
            found.in_answer = count(event.answer) > 0
    return found


def show_fact(
    store: RunStore, record: RunRecord, chosen: list[int], fact: str, outcome: Outcome
) -> None:
    """Prints where a text was, for each question."""
    traces = [trace(store, record.id, question, fact) for question in chosen]
    if outcome.display is Display.JSON:
        outcome.tell({"run_id": record.id, "fact": fact, "questions": list(map(asdict, traces))})
        return
    paper, books = outcome.paper, Tally.of(store, record).notebooks
    for found in traces:
        if len(traces) > 1:
            paper.line((f"question {found.question}", "bold cyan"))
        part, read = found.in_answer is None, books[found.question].read
        still = f"still there at chunk {read - 1}" if part else "stays to the end"
        for stay in found.stays:
            where = f" (characters {stay['start']:,} to {stay['end']:,})" if "start" in stay else ""
            where += f", {stay['place']}" if stay.get("place") else ""
            said = "" if stay["chunk"] in found.chunks else "; not word for word in that chunk"
            end = still if stay["lost"] is None else f"lost with chunk {stay['lost']}"
            how = f" with chunk {stay['chunk']}{where}{said}"
            how = ", recalled" if stay["chunk"] is None else how
            paper.line(("enters the memory", "green"), f"{how}; {end}")
        if not found.stays:
            paper.line(("never in the memory", "yellow"))
        listed = ", ".join(map(str, found.chunks[:MOST])) + (" …" if found.chunks[MOST:] else "")
        absent = f"not in the {plural(read, 'chunk')} read{' so far' if part else ''}"
        paper.line(f"in the document: {f'chunk {listed}' if listed else absent}")
        paper.line(
            "no answer yet" if part else f"in the answer: {'yes' if found.in_answer else 'no'}"
        )
