"""What the run store holds: runs, steps, and how far questions have come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from memagent.messages import Usage
from memagent.trajectory import Conversation

ANSWER_STEP = -1
"""Stands in the `chunk` column for the answer call."""


@dataclass(frozen=True)
class RunRecord:
    """One row of the store's list of runs."""

    id: str
    created: float
    """Seconds since the epoch."""
    updated: float
    status: str
    """`running` (or killed), `stopped` (resumable), `finished`."""
    binding: dict[str, Any]
    """What the run is bound to: model, questions, prompt set, counter, budget, cuts, seed."""
    settings: dict[str, Any]
    """What is needed to make the same agent again."""
    source: dict[str, Any]
    """The document's name, path and options."""


@dataclass(frozen=True)
class Pending:
    """What became of a call in earlier sessions, before it is sent now."""

    sent: int
    """How often it was sent without an outcome: it was in flight when a session ended."""
    unusable: int
    """How many of its replies were unusable."""


@dataclass(frozen=True)
class Step:
    """One call whose reply is to be committed."""

    question: int
    chunk: int | None
    """Index of the chunk, None for the answer call."""
    conversation: Conversation
    usage: Usage
    memory: str | None = None
    """The new memory; None where it was carried over."""
    tokens: int | None = None
    """Tokens of `memory`."""
    settled: bool = False
    answer: str | None = None


@dataclass
class QuestionState:
    """How far one question of a run has come."""

    question: int
    next_chunk: int = 0
    memory: str = ""
    """Empty until the first update."""
    settled: bool = False
    answer: str | None = None
