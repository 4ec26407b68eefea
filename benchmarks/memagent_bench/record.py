"""One line of `results.jsonl`: a system's outcome for a sample, and everything needed to judge or repeat it."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field, ValidationInfo

from memagent.messages import Leaf, Sampling, Usage
from memagent.tasks import Evidence
from memagent_bench.systems.base import Status


class Provenance(Leaf):
    """What produced a record; the same for all records of a run of the command."""

    model: str
    """The model's spec or name."""
    server: str | None
    """Engine, version and address without secrets; None for a model in this process."""
    prompts: str
    """Name and hash of the prompt set, `plain:0123456789abcdef`."""
    chunker: str
    """Cuts, chunk tokens and counter, `exact:5000:tokenizer.json:655f083a280d`."""
    window: int
    memory_tokens: int
    sampling: Sampling
    seed: int
    commit: str | None
    """Commit of the source tree; None outside of one."""
    dirty: bool | None
    """True if that tree had uncommitted changes."""
    packages: dict[str, str]
    """Names and versions of the packages that matter: memagent, openai, tokenizers, ..."""
    python: str
    machine: str
    """Processor, cores, system; no host name."""


def _check_status(status: Status, info: ValidationInfo) -> Status:
    if info.data.get("score") is not None and status is not Status.ANSWERED:
        raise ValueError("must be 'answered', since there is a score")
    return status


ScoredStatus: TypeAlias = Annotated[Status, AfterValidator(_check_status)]
"""Status of a record that has a score only if there is an answer. The field follows `score`."""


class Record(Leaf):
    """One sample under one system."""

    suite: str
    """`ruler`, `qa`, `tracking` or `notes`."""
    task: str
    length: int = Field(gt=0)
    """Length requested, in tokens."""
    index: int = Field(ge=0)
    """Index of the sample; the same index is the same sample for every system."""
    system: str
    score: float | None = Field(ge=0, le=1)
    """Headline score; None if there is no answer to score: unscored is neither zero nor dropped."""
    status: ScoredStatus
    scorer: str
    """Name of the headline score."""
    scores: dict[str, float] = Field(default_factory=dict)
    """All scores by name, including the headline one."""
    answer: str | None
    outputs: tuple[str, ...]
    question: str
    detail: str = ""
    """Why there is no answer: class and message of the error, or the stop's detail. For the system `published` with an
        answer: the temperature, and where the answer prefix was put."""
    tokens: int = Field(gt=0)
    """Tokens of the sample, by the length tokenizer."""
    chars: int = Field(ge=0)
    """Characters of the document."""
    bytes: int = Field(ge=0)
    """Size of the document, in UTF-8."""
    evidence: tuple[Evidence, ...] = ()
    competing: tuple[int, ...] | None = None
    """See `memagent.tasks.Sample`."""
    facts: dict[str, str | int | bool] = Field(default_factory=dict)
    """Facts that the task reports about its data."""
    run_id: str | None = None
    chunks: int | None = None
    usage: Usage = Usage()
    predicted_calls: int | None = None
    predicted_tokens: int | None = None
    shown: float = 1.0
    """Share of the document that the model saw, if the record has an answer."""
    seconds: float = Field(ge=0, allow_inf_nan=False)
    """Wall time of this session's part of the sample; `resumed` says whether there was an earlier one."""
    resumed: bool = False
    started: str
    """UTC, ISO 8601."""
    document: str
    """First 16 hex digits of the SHA-256 of the context."""
    provenance: Provenance

    @property
    def key(self) -> tuple[str, str, int, str, int]:
        """Identity of a record in a folder: suite, task, length, system, index."""
        return (self.suite, self.task, self.length, self.system, self.index)
