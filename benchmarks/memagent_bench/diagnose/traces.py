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
"""Answers that a memory may imply without containing the word, or contain without implying."""


class Fate(StrEnum):
    """The fate of a reference in the memories."""

    HELD = "held"
    """The final memory has all required text. If the answer lacks the reference: unread at answer."""
    NEVER_WRITTEN = "never-written"
    """No memory from a required place on held its text."""
    LOST = "lost"
    """A memory held it, but a later one and the final one didn't."""
    NO_EVIDENCE = "no-evidence"
    """Memories can't tell: the evidence is spread over the whole document, the reference is a mere yes or no, or the
        question already names it."""


@dataclass(frozen=True)
class WantedItem:
    """One thing that an answer must have."""

    reference: str
    """The value; if it has several equivalent forms, the first."""
    forms: tuple[str, ...]
    got: bool
    """Whether the answer has it."""
    places: tuple[Evidence, ...]
    """Places in the document with the required evidence, in document order."""


@dataclass
class Place:
    """One place of the document, followed through the memories.

    A memory that holds a note before its place was read has guessed it, or read the same text elsewhere: the note
    counts as written only from the chunk that shows the place. Only the memory is carried over, so a note that
    returns was there in other words (unless the document repeats it): only a loss that lasts to the end counts.
    """

    evidence: Evidence
    forms: tuple[str, ...]
    """Forms of its notes: a memory that noted the place holds one of them."""
    chunks: tuple[int, int] | None = None
    """First and last chunk that show a part of it."""
    early: bool = False
    """Whether a memory held it before it was read."""
    written: int | None = None
    """The first chunk whose memory held it."""
    lost: int | None = None
    """The first chunk whose memory no longer held it."""
    returned: int = 0
    """How often it returned."""

    def read(self, chunk: ChunkRead) -> None:
        """Takes in a chunk that is about to be shown."""
        if chunk.start < self.evidence.end and chunk.end > self.evidence.start:
            first = chunk.chunk if self.chunks is None else self.chunks[0]
            self.chunks = (first, chunk.chunk)

    def step(self, chunk: int, memory: str) -> None:
        """Takes in a chunk's committed memory, in the form used for comparison."""
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
    """A reference of one sample under one system, and its fate."""

    record: Record = field(repr=False)
    reference: str
    notes: tuple[str, ...]
    """Notes of which the memory had to hold one: those of the first place lost or not written, else of all places."""
    got: bool
    """Whether the answer has it."""
    fate: Fate
    chunk: int | None
    """The chunk whose memory lost it, or the last chunk that showed what was never written. None if neither happened,
        or if that place was never read (the run had settled)."""
    risk: int
    """Chunk steps after the one that first wrote it, up to the end or to the miss."""
    early: bool
    """Whether a memory held part of it before it was read."""
    returned: int
    """How often part of it was gone and returned."""
    met: int | None = None
    """Competing notes in the chunks of `risk`; None if the task doesn't distinguish them."""

    @property
    def label(self) -> str:
        """The verdict on a miss: exactly one."""
        if self.fate is Fate.HELD:
            return "unread-at-answer"
        return f"lost-at-chunk-{self.chunk}" if self.fate is Fate.LOST else self.fate.value


def list_wanted(record: Record) -> list[WantedItem]:
    """Returns what an answer must have: each reference, or one item if the references are forms of one answer."""
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
    """Follows what a record's answer must have through the memories of its run.

    Args:
        record: the record of a sample with an answer.
        events: the events of its run (one question), in order.
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
                last = max(last, event.chunk)  # a chunk may be read again
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
    """Returns the places to follow: those with notes, else the last one, after which the reference can be known."""
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
    """Traces a reference. Its fate is that of the place that was lost or not written first.

    If a loss and a place that was not written fall on the same chunk (a wrong sum), it counts as lost.
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
    """Counts the competing notes that begin between two characters."""
    if competing is None:
        return None
    return bisect_left(competing, end) - bisect_left(competing, start)
