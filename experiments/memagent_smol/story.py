"""What a document tells that its question needs, and what a memory should hold of it."""

from __future__ import annotations

from dataclasses import dataclass

from memagent.tasks import Sample

UNKNOWN = "unknown"
"""The answer to a question that the document does not answer."""


@dataclass(frozen=True)
class Note:
    """A sentence that a memory should hold from where it stands on."""

    text: str
    title: str = ""
    """Of the paragraph, where it has one. A memory that can see it names it, since sentences say `he` and `it`."""
    replaces: bool = False
    """It makes all notes before it outdated."""


@dataclass(frozen=True)
class Lesson:
    """A document, and what an expert makes of it."""

    context: str
    question: str
    answer: str
    notes: tuple[Note, ...]
    """In the order of the document."""


def lesson_of(sample: Sample, notes: tuple[Note, ...]) -> Lesson:
    """Of a sample: the answer is its first reference of QA, and all references where all are wanted."""
    outputs = sample.outputs if sample.task not in ("squad", "hotpotqa") else sample.outputs[:1]
    return Lesson(sample.context, sample.question, ", ".join(outputs), notes)
