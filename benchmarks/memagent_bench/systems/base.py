"""The interface of a system: a sample in, an outcome out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from memagent.memory.plan import MemorySettings
from memagent.messages import Leaf, Usage
from memagent.models.base import ChatModel
from memagent.prompts import PromptSet
from memagent.runstore import RunStore
from memagent.tasks import Sample


class Status(StrEnum):
    """How a sample ended with a system."""

    ANSWERED = "answered"
    """There is an answer, with a score, which may be 0."""
    STOPPED = "stopped"
    """The agent stopped without an answer (a limit, an unusable reply). No score: it counts as missing."""
    FAILED = "failed"
    """An error. No score: it counts as missing, never as an answer."""


class Outcome(Leaf):
    """A system's result for a sample."""

    answer: str | None
    """None if there is none; `detail` says why, or how the question was asked."""
    status: Status = Status.ANSWERED
    detail: str = ""
    usage: Usage = Usage()
    run_id: str | None = None
    """Id in the run store, for systems that use one."""
    chunks: int | None = None
    """Chunks read; None for systems that don't read in chunks."""
    predicted_calls: int | None = None
    """Calls that the system predicted before the first one; None if it makes no prediction."""
    predicted_tokens: int | None = None
    """Upper bound on prompt plus completion tokens; None if it makes no prediction."""
    shown: float = 1.0
    """Share of the document's characters that appeared in any prompt."""


@dataclass(frozen=True)
class Setting:
    """What all systems of one benchmark share."""

    model: ChatModel
    """The model, with retries, limits and bounded concurrency."""
    prompts: PromptSet
    settings: MemorySettings
    """The memory agent's window, chunk, memory, cuts, sampling and seed; other systems use those that apply."""
    store: RunStore
    """Store of the runs, so that a sample can be resumed midway."""


class System(Protocol):
    """A way to answer a question about a document."""

    @property
    def name(self) -> str:
        """Name in `--systems`."""
        ...

    async def answer(self, sample: Sample, run_id: str) -> Outcome:
        """Answers one sample.

        Args:
            sample: document and question. The system must not use the references.
            run_id: the same for the same sample and system, so that a killed run can be resumed.

        Raises:
            MemagentError: the sample failed; the runner records it.
        """
        ...
