"""The progress of a reading's questions, as the store holds it, and the results derived from it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from memagent.events import CUT_OFF
from memagent.messages import Usage
from memagent.models.limit import Limits
from memagent.run.result import Result
from memagent.runstore import RunRecord, RunStore
from memagent.trajectory import StopReason, Trajectory


@dataclass
class State:
    """The progress of one question."""

    question: int
    next_chunk: int = 0
    memory: str = ""
    """Empty until the first update."""
    tokens: int = 0
    """Tokens of the memory."""
    carried: int | None = None
    """Number of the update that wrote the memory."""
    settled: bool = False
    """The exit gate ended the reading for this question."""
    answer: str | None = None
    truncated: bool = False
    """The answer was cut off by its token limit."""
    step: int = 0
    """Number of the next update: that of its chunk, unless an extraction needed several replies for a chunk."""
    progress: dict[str, Any] = field(default_factory=dict[str, Any])
    """What an extraction continues from."""
    again: tuple[int, ...] | None = None
    """Chunks to read again; None unless a first answer said that the memory doesn't settle the question."""
    rereads: int = 0
    """How many of those have been read again."""
    partial: bool = False
    """The answer is from the memory so far: a usage limit stopped the reading."""
    stopped: StopReason | None = None
    """Why the question stopped in this session."""
    detail: str = ""
    """The stop reason as a sentence."""

    def waits(self) -> bool:
        """Returns whether the question still needs an answer or more of the document."""
        return self.answer is None and self.stopped is None


def restore(store: RunStore, run_id: str, questions: int) -> list[State]:
    """Restores the progress of a run's questions. Blocks for about 0.3 ms per question, however long the run is."""
    states: list[State] = []
    for question in range(questions):
        states.append(state := State(question))
        if (last_update := store.latest(run_id, f"update/q{question}")) is not None:
            number, body = last_update
            state.step, state.settled = number + 1, body.get("settled", False)
            state.next_chunk = body.get("next", number + 1)
            state.progress = body.get("progress", {})
            state.carried = body.get("carried")
        if state.carried is not None:
            update = store.effect(run_id, f"update-{state.carried}/q{question}")
            assert update is not None, "a memory is carried from an update that is committed"
            state.memory, state.tokens = update["memory"], update["tokens"]
        draft = store.effect(run_id, f"draft/q{question}") or {}
        if "again" in draft:
            number, body = store.latest(run_id, f"reread/q{question}") or (-1, draft)
            state.memory, state.tokens = body["memory"], body["tokens"]
            state.again, state.rereads = tuple(draft["again"]), number + 1
        if (answer := store.effect(run_id, f"answer/q{question}")) is not None:
            state.answer, state.truncated = answer["answer"], answer.get("truncated", False)
    return states


def needs_more(last: dict[str, Any] | None, state: State) -> bool:
    """Returns whether a question needs more of the document; `last` is the mark of the last chunk read."""
    if not state.waits() or state.settled:
        return False
    return last is None or not last["last"] or state.next_chunk <= last["chunk"]


def is_read(store: RunStore, run: RunRecord) -> bool:
    """Returns whether a run needs no more of its document. Blocks."""
    last_chunk = store.latest(run.id, "chunk")
    mark = None if last_chunk is None else last_chunk[1]["mark"]
    states = restore(store, run.id, len(run.binding["questions"]))
    return not any(needs_more(mark, state) for state in states)


def read_results(
    store: RunStore,
    run_id: str,
    questions: Sequence[str],
    states: Sequence[State],
    limits: Limits | None,
    source: dict[str, Any],
) -> list[Result]:
    """Makes one result per question, priced by the limits. Blocks."""
    results: list[Result] = []
    costs = store.usages(run_id)
    for state in states:
        usage = costs.get(state.question, Usage())
        conversations = store.conversations(run_id, state.question)
        reason = state.stopped or (StopReason.SETTLED if state.settled else StopReason.ANSWERED)
        result = Result(
            question=questions[state.question],
            answer=state.answer,
            memory=state.memory,
            stop_reason=reason,
            usage=usage,
            chunks=state.next_chunk,
            rereads=state.rereads,
            source=source,
            run_id=run_id,
            trajectory=Trajectory(conversations, state.answer, reason),
            detail=state.detail or CUT_OFF * state.truncated,
            truncated=state.truncated,
            partial=state.partial,
            cost=None if limits is None else limits.price(usage),
        )
        results.append(result)
    return results
