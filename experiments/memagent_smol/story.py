"""The parts of a document that its question needs, and what a memory should keep of them."""

from __future__ import annotations

from dataclasses import dataclass

from memagent.tasks import Sample

UNKNOWN = "unknown"
"""The answer to a question that the document does not answer."""


@dataclass(frozen=True)
class Note:
    """A sentence that a memory should contain from its place on."""

    text: str
    title: str = ""
    """Title of the paragraph, if it has one. A memory names it if it is visible, since sentences say `he` and `it`."""
    replaces: bool = False
    """Whether it makes all notes before it outdated."""


@dataclass(frozen=True)
class Lesson:
    """A document with its notes for an expert."""

    context: str
    question: str
    answer: str
    notes: tuple[Note, ...]
    """Notes in document order."""


def lesson_of(sample: Sample, notes: tuple[Note, ...]) -> Lesson:
    """Makes the lesson of a sample: the answer is its first reference for QA, and all references if all are wanted."""
    outputs = sample.outputs if sample.task not in ("squad", "hotpotqa") else sample.outputs[:1]
    return Lesson(sample.context, sample.question, ", ".join(outputs), notes)
