"""`roll`: runs many rollouts on one event loop, and rewards them."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, SupportsFloat, cast

from memagent.errors import ConfigError, MemagentError
from memagent.models.base import ChatModel
from memagent.models.limit import ConcurrencyLimit
from memagent.run.result import RunResult, SessionResult
from memagent.tasks import Sample
from memagent.texts import repair_surrogates
from memagent_train.agents import AgentFunction, GatedResult
from memagent_train.rewards.verdict import LARGEST
from memagent_train.rollout.model import RolloutModel
from memagent_train.rollout.rows import RolloutRecorder, with_reads
from memagent_train.rollouts import ROLLOUT, Outcome, Rollout, Row, Running, Status
from memagent_train.sessions import OVERLONG

AT_WORK = 4
"""Agents per call in flight: some of them wait for tools."""
MOST_AT_WORK = 512
"""Maximum number of agents, unless more calls than that are allowed: each agent holds files open."""


@dataclass(frozen=True)
class RolloutRequest:
    """A request for one rollout."""

    sample: Sample
    group_id: str
    """Shared by the rollouts of one sample in one step."""
    rollout_id: str
    """Unique id; also a run id: 1 to 64 letters, digits, `.`, `_` or `-`."""
    seed: int
    """Seed of everything drawn. Rollouts of a group need different seeds, or they would all be the same."""


class Verifier(Protocol):
    """Assigns rewards to rollouts."""

    async def verify(self, rollout: Rollout) -> Rollout:
        """Returns the rollout with its reward, status, scores and step rewards, or why there are none. Never raises."""
        ...


async def roll(
    requests: Sequence[RolloutRequest],
    *,
    model: ChatModel,
    agent: AgentFunction,
    verifier: Verifier,
    concurrency: int = 64,
    on_done: Callable[[Rollout], None] | None = None,
) -> list[Rollout]:
    """Makes rollouts and verifies them.

    A rollout whose agent raises is `FAILED` and not verified; the others continue. Only calls count towards
    `concurrency`: while one rollout's tools run, or it is verified, others use the engine. Cancelling cancels all of
    them and waits until they have ended.

    Args:
        requests: B rollouts.
        model: the policy, ready to serve; its replies must include ids and log-probs. Pass a `RolloutModel` without a
            wrapper: each rollout gets a fresh copy, which doesn't see the others' conversations.
        agent: runs each rollout.
        verifier: rewards each rollout.
        concurrency: maximum number of calls in flight. Up to four times as many agents run.
        on_done: called with each rollout as it finishes.

    Returns:
        B rollouts in the order of the requests.

    Raises:
        ConfigError: `concurrency` is below 1, or two requests have the same id.
        Exception: what `on_done` raised.
    """
    if concurrency < 1:
        raise ConfigError(f"concurrency must be at least 1, got {concurrency!r}")
    ids = [request.rollout_id for request in requests]
    if len(set(ids)) < len(ids):
        twice = next(rollout_id for rollout_id in ids if ids.count(rollout_id) > 1)
        raise ConfigError(f"two rollouts have the id {twice!r}: ids must be unique")
    places = asyncio.Semaphore(max(concurrency, min(AT_WORK * concurrency, MOST_AT_WORK)))
    limit = ConcurrencyLimit(model, concurrency)

    async def roll_request(request: RolloutRequest) -> Rollout:
        async with places:
            started = time.perf_counter()
            rollout = await _run(request, model, limit, agent)
        if rollout.status is not Status.FAILED:
            rollout = await verifier.verify(rollout)
        rollout = replace(rollout, seconds=time.perf_counter() - started)
        if on_done is not None:
            on_done(rollout)
        return rollout

    tasks = [asyncio.create_task(roll_request(request)) for request in requests]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            if not task.cancelling():  # once: a second one would interrupt its cleanup
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(
    request: RolloutRequest, model: ChatModel, limit: ConcurrencyLimit, agent: AgentFunction
) -> Rollout:
    """Runs one rollout up to its answer."""
    running = Running(request.rollout_id, request.seed)
    policy = model.clone(request.seed) if isinstance(model, RolloutModel) else model
    recorder = RolloutRecorder(limit.around(policy))
    token = ROLLOUT.set(running)
    try:
        returned = await agent(recorder, request.sample)
        outcome = read_outcome(returned, cut_off=recorder.cut_off)
        rows = recorder.rows()
        if isinstance(returned, GatedResult):
            rows = with_reads(rows, returned.reads)
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise
        return Rollout(
            group_id=request.group_id,
            rollout_id=request.rollout_id,
            sample=request.sample,
            rows=_salvage_rows(recorder),
            answer=None,
            status=Status.FAILED,
            error=repair_surrogates(f"{type(error).__name__}: {error}"),
        )
    finally:
        ROLLOUT.reset(token)
    return Rollout(
        group_id=request.group_id,
        rollout_id=request.rollout_id,
        sample=request.sample,
        rows=rows,
        answer=None if outcome.answer is None else repair_surrogates(outcome.answer),
        status=Status.UNSCORED,
        reward=outcome.reward,
        scores=dict(outcome.scores),
        overlong=outcome.overlong,
    )


def read_outcome(returned: object, *, cut_off: bool) -> Outcome:
    """Converts what an agent returned to an `Outcome`.

    Args:
        returned: what the agent returned.
        cut_off: whether the reply to its last call was cut off, which counts as a cut-off answer unless the agent
            says otherwise.

    Raises:
        ConfigError: the agent returned something else.
    """
    match returned:
        case Outcome():
            return _check(returned)
        case SessionResult(answer=answer, stop_reason=reason, truncated=truncated):
            return Outcome(answer, overlong=truncated or reason in OVERLONG)
        case RunResult(answer=answer, stop_reason=reason):
            return Outcome(answer, overlong=cut_off or reason in OVERLONG)
        case None | str():
            return Outcome(returned, overlong=cut_off)
        case _:
            raise ConfigError(
                f"the agent returned {returned!r}: return the answer as a text, None if there is none, an Outcome, or "
                f"the result of a memagent agent"
            )


def _check(outcome: Outcome) -> Outcome:
    """Converts to plain types. A custom agent may return anything: a wrong type would end the training once logged."""
    scores = cast("dict[object, object]", dict(outcome.scores))
    reward = outcome.reward
    if not isinstance(cast("object", outcome.answer), str | None):
        wrong = f"answer={outcome.answer!r:.80}; give a text, or None"
    elif not all(isinstance(name, str) for name in scores):
        wrong = f"scores={outcome.scores!r:.200}; name them by texts"
    elif outcome.overlong not in (True, False):
        wrong = f"overlong={outcome.overlong!r:.80}; give True or False"
    else:
        try:
            numbers = {str(name): _as_float(score) for name, score in scores.items()}
            figures = {name: score for name, score in numbers.items() if abs(score) <= LARGEST}
            reward = None if reward is None else _as_float(reward)
            return replace(outcome, reward=reward, scores=figures, overlong=bool(outcome.overlong))
        except (TypeError, ValueError, OverflowError, RuntimeError):
            wrong = f"reward={reward!r:.80} and scores={outcome.scores!r:.200}; give numbers"
    raise ConfigError(f"the agent returned an Outcome with {wrong}")


def _as_float(figure: object) -> float:
    """Converts a number, also of numpy or torch; a text isn't a number."""
    if not isinstance(figure, SupportsFloat):
        raise TypeError(figure)
    return float(figure)


def _salvage_rows(recorder: RolloutRecorder) -> tuple[Row, ...]:
    """Returns the conversations of a failed rollout, for the log."""
    try:
        return recorder.rows()
    except MemagentError:
        return ()
