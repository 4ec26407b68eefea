"""A run that reads a document, as data for the page: where chunks come from, and how each changed the memories."""

from collections.abc import Iterator, Sequence
from typing import Any

from memagent import events
from memagent.cli.history import tell
from memagent.messages import Usage
from memagent.texts import repair_surrogates
from memagent_viewer.deltas import find_delta

COSTS = ("calls", "prompt_tokens", "completion_tokens", "retries")


def cost(usage: Usage) -> list[int]:
    """Returns the counts that the page shows, in the order of `COSTS`."""
    return [getattr(usage, name) for name in COSTS]


class Reading:
    """Collects the events of a run with document and questions; `data` returns what the page needs of them."""

    def __init__(self, questions: Sequence[str]) -> None:
        self._chunks: list[list[Any]] = []
        self._books = [_Book(question) for question in questions]

    def add(self, event: events.Event) -> None:
        """Adds one event."""
        if isinstance(event, events.ChunkRead):
            self._chunks.append([event.start, event.end, event.tokens, event.place, ""])
        elif isinstance(event, events.Neutralised):
            self._chunks[event.chunk][-1] = tell(event)
        else:
            question: int | None = getattr(event, "question", None)
            if question is not None:
                self._books[question].add(event)

    def data(self) -> dict[str, Any]:
        """Returns plain data: `chunks` as start, end, tokens, place and note; `books` with each question's steps."""
        return {"chunks": self._chunks, "books": [book.data() for book in self._books]}

    def effects(self) -> Iterator[str]:
        """Yields the effects with the chunks' texts, those that changed a memory first."""
        changed_chunks = {
            step["chunk"] for book in self._books for step in book.steps.values() if step["delta"]
        }
        order = [
            *sorted(changed_chunks),
            *(n for n in range(len(self._chunks)) if n not in changed_chunks),
        ]
        return (f"chunk-{number}" for number in order)


class _Book:
    """One question: its steps, memory and answer."""

    def __init__(self, question: str) -> None:
        self.question = question
        self.steps: dict[int, dict[str, Any]] = {}
        self._memory = ""
        self._before, self._chunk, self._spent = "", -1, Usage()
        """The memory before the last chunk, that chunk, and its cost so far: an extraction may call several times."""
        self._again = False
        """Whether chunks are being read again, which is shown as part of the answer."""
        self._answer: dict[str, Any] = {"text": None, "notes": [], "cost": cost(Usage())}

    def step(self, chunk: int) -> dict[str, Any]:
        """Returns what is known of a chunk."""
        empty: dict[str, Any] = {"chunk": chunk, "how": "waiting", "delta": [], "notes": []}
        return self.steps.setdefault(chunk, empty | {"tokens": None, "cost": cost(Usage())})

    def add(self, event: events.Event) -> None:
        match event:
            case events.MemoryUpdated() | events.MemoryKept():
                self._read(event)
            case events.Rereading():
                self._again, self._memory = True, events.memory_after(event, self._memory)
                self._note(None, tell(event))
            case events.MemoryTruncated():
                sizes = f"{event.tokens_before:,} to {event.tokens_after:,} tokens"
                self._note(event.chunk, f"memory cut at a sentence end, from {sizes}")
            case events.MemoryDegenerate() | events.Retried() | events.RowsFound():
                self._note(event.chunk, tell(event))
            case events.Settled():
                self._note(event.chunk, "the model said done: the rest was not read")
            case events.Answered():
                self._answer |= {"text": event.answer.strip(), "cost": cost(event.usage)}
                self._answer["partial"] = event.partial
                self._note(None, events.CUT_OFF if event.truncated else "")
                self._note(None, "" if event.form_found else "the reply lacks the answer's form")
                self._note(None, "from the part read so far" if event.partial else "")
            case events.Stopped():
                note = f"stopped ({event.reason.replace('_', ' ')}): {event.detail}"
                self._note(max(self.steps, default=None), note)
                self._answer["stopped"] = note
            case _:
                pass

    def _read(self, event: events.MemoryUpdated | events.MemoryKept) -> None:
        if self._again:
            is_kept = isinstance(event, events.MemoryKept)
            is_changed = not is_kept and event.memory != self._memory
            self._memory = self._memory if is_kept else repair_surrogates(event.memory)
            outcome = "memory changed" if is_changed else "memory unchanged"
            self._note(None, f"chunk {event.chunk} read again: {outcome}")
            return
        if event.chunk != self._chunk:
            self._chunk, self._before, self._spent = event.chunk, self._memory, Usage()
        self._spent += event.usage
        step = self.step(event.chunk)
        step["cost"] = cost(self._spent)
        if isinstance(event, events.MemoryKept):
            step["how"] = "updated" if step["delta"] else "kept"
            return
        self._memory = repair_surrogates(event.memory)
        is_changed = self._memory != self._before
        step["delta"] = find_delta(self._before, self._memory) if is_changed else []
        step |= {"how": "updated" if is_changed else "unchanged", "tokens": event.tokens}

    def _note(self, chunk: int | None, text: str) -> None:
        notes = self._answer["notes"] if chunk is None else self.step(chunk)["notes"]
        notes += [text] if text else []

    def data(self) -> dict[str, Any]:
        steps = [self.steps[chunk] for chunk in sorted(self.steps)]
        answer = self._answer | ({"memory": self._memory} if self._again else {})
        return {"question": self.question, "steps": steps, "answer": answer}
