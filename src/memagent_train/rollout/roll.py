"""`roll`: many rollouts on one event loop, and their rewards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from memagent.errors import ConfigError, MemagentError
from memagent.models.base import ChatModel
from memagent.run.result import Result
from memagent.tasks import Sample
from memagent.trajectory import StopReason
from memagent_train.agents import ROLLOUT, AgentFunction, GatedResult, Running
from memagent_train.rollout.model import RolloutModel
from memagent_train.rollout.rows import RolloutRecorder, with_reads
from memagent_train.rollouts import Rollout, Row, Status


@dataclass(frozen=True)
class RolloutRequest:
    """One rollout that is to be made."""

    sample: Sample
    group_id: str
    """Shared by the rollouts of one sample in one step."""
    rollout_id: str
    """Unique; also a run id: 1 to 64 letters, digits, `.`, `_` or `-`."""
    seed: int
    """Of all that is drawn. The rollouts of a group need different ones, else they are all the same."""


class Verifier(Protocol):
    """Says what rollouts are worth."""

    async def verify(self, rollout: Rollout) -> Rollout:
        """The rollout with its reward, status, scores, step rewards, or why there are none. Never raises."""
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
    """Makes rollouts, and has them verified.

    A rollout whose agent raises is `FAILED` and not verified; the others go on. Verifying takes none of
    the `concurrency`: while one rollout is verified, the next has its place at the engine. Cancelling cancels all of
    them, and waits until they have let go.

    Args:
        requests: B rollouts.
        model: the policy, ready to serve; its replies carry ids and log-probs. A `RolloutModel` goes in bare, not in a
            wrapper: each rollout gets a fresh one, which knows no other's conversations.
        agent: makes each rollout.
        verifier: rewards each.
        concurrency: most agents at work at once.
        on_done: called with each rollout when it is through, in the order in which they end.

    Returns:
        B rollouts in the order of the requests.

    Raises:
        ConfigError: `concurrency` is below 1, or two requests have one id.
        Exception: what `on_done` raised.
    """
    if concurrency < 1:
        raise ConfigError(f"concurrency {concurrency!r} would let no rollout begin; give 1 or more")
    ids = [request.rollout_id for request in requests]
    if len(set(ids)) < len(ids):
        twice = next(one for one in ids if ids.count(one) > 1)
        raise ConfigError(f"two rollouts have the id {twice!r}: give each one of its own")
    places = asyncio.Semaphore(concurrency)

    async def roll_request(request: RolloutRequest) -> Rollout:
        async with places:
            started = time.perf_counter()
            rollout = await _run(request, model, agent)
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
            if not task.cancelling():  # once: a second time would break off what it does to let go
                task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(request: RolloutRequest, model: ChatModel, agent: AgentFunction) -> Rollout:
    """One rollout up to its answer."""
    running = Running(request.rollout_id, request.seed)
    own = model.clone(request.seed) if isinstance(model, RolloutModel) else model
    recorder = RolloutRecorder(own)
    before = ROLLOUT.set(running)
    try:
        returned = await agent(recorder, request.sample)
        answer, limited = _outcome(returned)
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
            error=f"{type(error).__name__}: {error}",
        )
    finally:
        ROLLOUT.reset(before)
    return Rollout(
        group_id=request.group_id,
        rollout_id=request.rollout_id,
        sample=request.sample,
        rows=rows,
        answer=answer,
        status=Status.UNSCORED,
        overlong=limited or recorder.cut_off,
    )


def _outcome(returned: object) -> tuple[str | None, bool]:
    """The answer that an agent gives, and whether a limit ended its run.

    Raises:
        ConfigError: it gives something else.
    """
    if isinstance(returned, Result):
        return returned.answer, returned.stop_reason is StopReason.LIMIT
    if returned is None or isinstance(returned, str):
        return returned, False
    raise ConfigError(
        f"the agent returned {returned!r}: return the answer as a text, None where there is none, or a memagent Result"
    )


def _salvage_rows(recorder: RolloutRecorder) -> tuple[Row, ...]:
    """What a failed rollout said before, for the log."""
    try:
        return recorder.rows()
    except MemagentError:
        return ()
