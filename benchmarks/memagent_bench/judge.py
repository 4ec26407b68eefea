"""Turns an outcome into a record: the scores, and everything needed to judge them again."""

from __future__ import annotations

from memagent.errors import ConfigError
from memagent.tasks import SCORERS, Sample, Task
from memagent_bench.drafts import PreparedSample
from memagent_bench.grid import Job
from memagent_bench.record import Provenance, Record
from memagent_bench.systems.base import Outcome, Status

QA_SCORES = ("sub_exact_match", "exact_match", "f1")
"""Scores beside the headline score that publications on question answering report."""
QA_SUITE, QA_TASKS = "qa", "qa_"
"""The suite, and the name prefix of RULER's tasks, that are question answering."""


def scores_of(suite: str, task: Task, sample: Sample, answer: str) -> dict[str, float]:
    """Returns the headline score of an answer and further ones, by name."""
    names = [task.scorer]
    if suite == QA_SUITE or task.name.startswith(QA_TASKS):
        names += QA_SCORES
    return {name: SCORERS[name](answer, sample.outputs) for name in names}


def record_of(
    job: Job,
    made: PreparedSample,
    outcome: Outcome,
    *,
    seconds: float,
    resumed: bool,
    started: str,
    provenance: Provenance,
) -> Record:
    """Returns the record of one sample under one system. A missing answer has no score.

    Args:
        job: suite, system and index.
        made: the sample and its task.
        outcome: the system's outcome.
        seconds: wall time of this session's part.
        resumed: whether an earlier session did a part of it.
        started: UTC, ISO 8601.
        provenance: of this session.
    """
    task, sample, scores = made.task, made.sample, dict[str, float]()
    answer, status, detail = outcome.answer, outcome.status, outcome.detail
    if status is not Status.ANSWERED:
        answer = None  # a partial answer at a stop isn't an answer
    elif answer is None:
        status, detail = Status.FAILED, "the system returned no answer"
    else:
        try:
            scores = scores_of(job.suite, task, sample, answer)
        except ConfigError as error:  # an error in the data: a reference that can't be compared
            status, detail = Status.FAILED, f"the answer cannot be scored: {error}"
    return Record(
        suite=job.suite,
        task=job.task,
        length=job.length,
        index=job.index,
        system=job.system,
        score=scores.get(task.scorer),
        status=status,
        scorer=task.scorer,
        scores=scores,
        answer=answer,
        outputs=sample.outputs,
        question=sample.question,
        detail=detail,
        tokens=sample.tokens,
        chars=len(sample.context),
        bytes=made.bytes,
        evidence=sample.evidence,
        competing=sample.competing,
        facts=dict(task.facts),
        run_id=outcome.run_id,
        chunks=outcome.chunks,
        usage=outcome.usage,
        predicted_calls=outcome.predicted_calls,
        predicted_tokens=outcome.predicted_tokens,
        shown=outcome.shown,
        seconds=seconds,
        resumed=resumed,
        started=started,
        document=made.document,
        provenance=provenance,
    )
