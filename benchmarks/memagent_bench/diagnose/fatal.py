"""The step at which a reference was lost, not written, or not read, with the texts before and after it."""

from __future__ import annotations

from dataclasses import dataclass

from memagent.cli.changes import Change, changes
from memagent.events import (
    Answered,
    ChunkRead,
    MemoryKept,
    MemoryTruncated,
    MemoryUpdated,
    memory_after,
)
from memagent.quotes import sentences
from memagent.runstore import RunStore
from memagent_bench.diagnose.forms import FORMS
from memagent_bench.diagnose.traces import Trace


@dataclass(frozen=True)
class Fatal:
    """One step of a run."""

    chunk: int | None
    """Index of the chunk; None for the answer."""
    span: tuple[int, int] | None
    """First character of the chunk, and one past its last."""
    before: str
    """The memory before the step; empty for the first chunk."""
    after: str
    """The memory after the step, or the answer if `chunk` is None."""
    kept: bool = False
    """Whether the model kept the memory unchanged."""
    truncated: tuple[int, int] | None = None
    """Tokens before and after, if the new memory was cut to its budget."""


def fatal(trace: Trace, store: RunStore) -> Fatal:
    """Returns the step that caused a miss.

    That is the chunk `trace.chunk`, else the answer call (the memory held the reference, or the chunk is unknown).

    Args:
        trace: the trace of a miss.
        store: the store with its run.

    Raises:
        RunNotFound: the store has no such run.
    """
    run_id = trace.record.run_id or ""
    store.get(run_id)
    span, memory, truncated = None, "", None
    for event in store.events(run_id):
        match event:
            case ChunkRead():
                span, truncated = (event.start, event.end), None
            case MemoryTruncated():
                truncated = (event.tokens_before, event.tokens_after)
            case MemoryKept() if event.chunk == trace.chunk:
                return Fatal(event.chunk, span, memory, memory, kept=True)
            case MemoryUpdated() if event.chunk == trace.chunk:
                return Fatal(event.chunk, span, memory, event.memory, truncated=truncated)
            case Answered():
                return Fatal(None, None, memory, event.answer)
            case _:
                memory = memory_after(event, memory)
    return Fatal(None, None, memory, trace.record.answer or "")


def difference(step: Fatal, trace: Trace, most: int = 5) -> list[Change]:
    """Returns what the step changed, in at most `most` sentences, those with the required text first.

    For the answer call: the memory's sentences that contain it, replaced by the answer.
    """
    form = FORMS[trace.record.scorer]
    nothing = form("")
    forms = [note_form for note in trace.notes if (note_form := form(note)) != nothing]

    def holds(text: str) -> bool:
        text_form = form(text)
        return any(note_form in text_form for note_form in forms)

    if step.chunk is None:
        removals = [text.strip() for text in sentences(step.before) if holds(text)][: most - 1]
        return [*(Change(text, "") for text in removals), Change("", step.after.strip())]
    edits = changes(step.before, step.after)
    edits.sort(key=lambda change: not (holds(change.removed) or holds(change.added)))
    return edits[:most]
