"""Traces each required reference through the memories of a run, chunk by chunk."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from memagent.events import ChunkRead, Event, MemoryKept, MemoryUpdated, Rereading, memory_after
from memagent.tasks import SCORERS, Evidence
from memagent.tasks.scores import squad
from memagent_bench.diagnose.forms import ALL_WANTED, FORMS
from memagent_bench.record import Record

F1_GOT = 0.5
"""An answer with at least this F1 counts as right here, since the score itself has no threshold."""
YES_NO = {"yes", "no"}
"""Answers that a memory may know without containing them, or contain without knowing them."""


class Fate(StrEnum):
    """The fate of a reference in the memories."""

    HELD = "held"
    """The final memory has everything it needs. If the answer lacks it: unread at answer."""
    NEVER_WRITTEN = "never-written"
    """No memory from a required place on had what it says."""
    LOST = "lost"
    """A memory had it, but a later one and the final one did not."""
    NO_EVIDENCE = "no-evidence"
    """No memory can tell: it is spread over all of the document, or it is a mere yes or no, or the question names it
    already."""


@dataclass(frozen=True)
class WantedItem:
    """One thing that an answer must have."""

    reference: str
    """The value; if it has several equivalent forms, the first."""
    forms: tuple[str, ...]
    got: bool
    """Whether the answer has it."""
    places: tuple[Evidence, ...]
    """That say what it needs, in the order of the document."""


@dataclass
class Place:
    """One place of the document, followed through the memories.

    A memory that holds a note before the place was read has guessed, or met the same text elsewhere: that counts
    as written only from the chunk on that shows the place. A memory is all that is carried over, so what
    comes back was there in other words (unless the document says it again): a loss is what lasts to the end.
    """

    evidence: Evidence
    forms: tuple[str, ...]
    """Of its notes: a memory that noted the place holds one of them."""
    chunks: tuple[int, int] | None = None
    """First and last chunk that shows a part of it."""
    early: bool = False
    """A memory held it before it was read."""
    written: int | None = None
    """The first chunk whose memory held it."""
    lost: int | None = None
    """The chunk whose memory was the first without it."""
    returned: int = 0
    """How often it came back."""

    def read(self, chunk: ChunkRead) -> None:
        """A chunk is about to be shown."""
        if chunk.start < self.evidence.end and chunk.end > self.evidence.start:
            first = chunk.chunk if self.chunks is None else self.chunks[0]
            self.chunks = (first, chunk.chunk)

    def step(self, chunk: int, memory: str) -> None:
        """A chunk's memory was committed, in the form in which texts are compared."""
        held = any(form in memory for form in self.forms)
        if self.chunks is None:
            self.early |= held
        elif held and self.written is None:
            self.written = chunk
        elif held and self.lost is not None:
            self.lost = None
            self.returned += 1
        elif not held and self.written is not None and self.lost is None:
            self.lost = chunk


@dataclass(frozen=True)
class Trace:
    """A reference of one sample under one system, and what became of it."""

    record: Record = field(repr=False)
    reference: str
    notes: tuple[str, ...]
    """One of them had to be in the memory: of the place where it broke off, else of all places."""
    got: bool
    """Whether the answer has it."""
    fate: Fate
    chunk: int | None
    """Where it broke off: the chunk whose memory lost it, or the last that showed what was never written; None where
    it did not, or where that was never read (the run had settled)."""
    risk: int
    """Chunk steps behind the one that wrote it first, up to the end or to where it broke off."""
    early: bool
    """A memory held something of it before it was read."""
    returned: int
    """How often something of it was gone, and came back."""
    met: int | None = None
    """Competing notes in the chunks of `risk`; None where the task does not tell them apart."""

    @property
    def label(self) -> str:
        """The verdict on a miss: exactly one."""
        if self.fate is Fate.HELD:
            return "unread-at-answer"
        return f"lost-at-chunk-{self.chunk}" if self.fate is Fate.LOST else self.fate.value


def list_wanted(record: Record) -> list[WantedItem]:
    """What a record's answer has to have: each reference, or one thing where they are forms of one answer."""
    outputs, answer = record.outputs, record.answer or ""
    if record.scorer not in ALL_WANTED:
        score = SCORERS[record.scorer](answer, outputs)
        got = score >= (F1_GOT if record.scorer == "f1" else 1)
        places = tuple(place for place in record.evidence if place.supports)
        return [WantedItem(outputs[0], outputs, got, places)]
    scorer = SCORERS["set_recall" if record.scorer == "set_precision" else record.scorer]
    return [
        WantedItem(
            output,
            (output,),
            scorer(answer, [output]) == 1,
            tuple(place for place in record.evidence if number in place.supports),
        )
        for number, output in enumerate(outputs)
    ]


def traces(record: Record, events: Iterable[Event]) -> list[Trace]:
    """Follows what a record's answer has to have through the memories of its run.

    Args:
        record: of a sample with an answer.
        events: of its run (one question), in order.
    """
    form = FORMS[record.scorer]
    items = list_wanted(record)
    followed = [_follow_places(item, record) for item in items]
    memory, last = "", -1
    ends: dict[int, int] = {}
    for event in events:
        match event:
            case ChunkRead():
                ends[event.chunk] = event.end
                for place in (place for places in followed for place in places):
                    place.read(event)
                continue
            case MemoryUpdated() | MemoryKept():
                last = max(last, event.chunk)  # one may be read again
            case Rereading():
                pass
            case _:
                continue
        memory = memory_after(event, memory)
        text = form(memory)
        for place in (place for places in followed for place in places):
            place.step(last, text)
    return [
        _trace(record, item, places, last, ends)
        for item, places in zip(items, followed, strict=True)
    ]


def _follow_places(item: WantedItem, record: Record) -> list[Place]:
    """The places to follow: those with notes; else the last one, from which on the reference can be known."""
    form = FORMS[record.scorer]
    # In memories that noted nothing too: what the question says, yes and no, and a form of nothing (of a note
    # without a number, where numbers are compared).
    nothing, question = form(""), form(record.question)

    def signs(texts: Sequence[str]) -> tuple[str, ...]:
        forms = (form(text) for text in texts if squad(text) not in YES_NO)
        return tuple(sign for sign in forms if sign != nothing and sign not in question)

    followed = [Place(place, forms) for place in item.places if (forms := signs(place.notes))]
    if not followed and item.places and (forms := signs(item.forms)):
        last = item.places[-1].model_copy(update={"notes": item.forms})
        followed.append(Place(last, forms))
    return followed


def _trace(
    record: Record, item: WantedItem, places: Sequence[Place], last: int, ends: Mapping[int, int]
) -> Trace:
    """The fate of a reference is that of the place where it broke off first.

    A loss and a place that was not written may fall on one chunk (a sum went wrong): then it was lost.
    """
    breaks: list[tuple[int, int, Place]] = []
    for place in places:
        if place.lost is not None:
            breaks.append((place.lost, 0, place))
        elif place.written is None:
            breaks.append((last + 1 if place.chunks is None else place.chunks[1], 1, place))
    fate, chunk, end = Fate.HELD, None, last
    notes = tuple(dict.fromkeys(note for place in places for note in place.evidence.notes))
    if not places:
        fate = Fate.NO_EVIDENCE
    elif breaks:
        at, kind, place = min(breaks, key=lambda entry: entry[:2])
        fate = Fate.NEVER_WRITTEN if kind else Fate.LOST
        chunk = at if at <= last else None
        notes, end = place.evidence.notes, min(at, last)
    first = min((place.written for place in places if place.written is not None), default=last)
    return Trace(
        record=record,
        reference=item.reference,
        notes=notes,
        got=item.got,
        fate=fate,
        chunk=chunk,
        risk=max(0, end - first),
        met=_count_met(record.competing, ends.get(first, 0), ends.get(max(first, end), 0)),
        early=any(place.early for place in places),
        returned=sum(place.returned for place in places),
    )


def _count_met(competing: Sequence[int] | None, start: int, end: int) -> int | None:
    """Competing notes that begin between two characters."""
    if competing is None:
        return None
    return bisect_left(competing, end) - bisect_left(competing, start)
