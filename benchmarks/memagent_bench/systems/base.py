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
    """There is an answer; it has a score, also where that is 0."""
    STOPPED = "stopped"
    """The agent stopped without an answer (a limit, an unusable reply). No score: it counts as missing."""
    FAILED = "failed"
    """An error. No score: it counts as missing, never as an answer."""


class Outcome(Leaf):
    """What a system made of a sample."""

    answer: str | None
    """None where there is none; `detail` says why, or how the question was put."""
    status: Status = Status.ANSWERED
    detail: str = ""
    usage: Usage = Usage()
    run_id: str | None = None
    """In the run store, for systems that keep one."""
    chunks: int | None = None
    """Chunks read; None for systems that do not read in chunks."""
    predicted_calls: int | None = None
    """Calls that the system's own arithmetic said before the first one; None where it has none."""
    predicted_tokens: int | None = None
    """Upper bound on prompt and completion tokens, likewise."""
    shown: float = 1.0
    """Share of the document's characters that any prompt held."""


@dataclass(frozen=True)
class Setting:
    """What all systems of one benchmark share."""

    model: ChatModel
    """With retries, limits and the bound on concurrency around it."""
    prompts: PromptSet
    settings: MemorySettings
    """Window, chunk, memory, cuts, sampling, seed: the memory agent's, and the others' where they apply."""
    store: RunStore
    """Where runs are kept, so that a sample resumes in its middle."""


class System(Protocol):
    """A way to answer a question about a document."""

    @property
    def name(self) -> str:
        """As in `--systems`."""
        ...

    async def answer(self, sample: Sample, run_id: str) -> Outcome:
        """Answers one sample.

        Args:
            sample: document and question. The references are not for the system to see.
            run_id: the same for the same sample and system, so that a killed run can be resumed.

        Raises:
            MemagentError: the sample failed; whoever runs the benchmark records it.
        """
        ...
