"""Plays a shift with one loop at a server, and aggregates the results."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack
from typing import NamedTuple

from memagent.messages import Usage
from memagent.texts import name_error
from memagent.threads import in_thread
from memagent_bench.sessions.counter import ChatCounter
from memagent_bench.sessions.record import Reason
from memagent_bench.sessions.seat import SessionEnd
from memagent_bench.sessions.wire.desk import Desk, Refusal, WriteSummary
from memagent_bench.sessions.wire.loop_figures import LoopFigures
from memagent_bench.sessions.wire.loops import Play
from memagent_bench.sessions.wire.post import Post
from memagent_bench.sessions.wire.server import MODEL, serving
from memagent_bench.shift.rules import LOST
from memagent_bench.shift.shift import Shift

REASONS = {
    Refusal.OVERFLOW: Reason.OVERFLOW,
    Refusal.BROKEN_PAIR: Reason.BROKEN_PAIR,
    Refusal.OUT_OF_STEPS: Reason.OUT_OF_STEPS,
}
OVERFLOW = re.compile("ContextOverflow|ContextWindow|WindowTooSmall")
"""Names of framework errors raised before anything is sent because the prompt won't fit."""


class SessionOutcome(NamedTuple):
    """The outcome of a session."""

    ended: SessionEnd
    usage: Usage
    largest: int
    """Tokens of the largest prompt."""
    wired: LoopFigures | None = None


async def work(
    play: Play,
    shift: Shift,
    counter: ChatCounter,
    *,
    window: int,
    max_steps: int,
    alone: bool,
    write: WriteSummary | None = None,
) -> SessionOutcome:
    """Works through a shift, and submits the answer.

    Args:
        play: the loop.
        shift: a fresh one.
        counter: the server's counter.
        window: the server's window, in tokens.
        max_steps: tool calls after which the server ends the session.
        alone: whether nothing else runs in this process: its processor time is the loop's and the server's.
        write: writes the summaries instead of the rules.
    """
    desk = Desk(shift, counter, window, max_steps, write)
    with ExitStack() as stack:
        server = await in_thread(stack.enter_context, serving(desk))
        start = time.process_time()
        ended = await _end(play, Post(server.url, MODEL, window, shift.task, shift.tools), desk)
        seconds = time.process_time() - start - server.cpu
        await in_thread(stack.close)
    if ended.answer is not None:
        shift.finish(ended.answer)
    refusals = [why for why, _ in desk.refused]
    wired = LoopFigures(
        probes=shift.probes,
        repeated=shift.repeated,
        overflows=refusals.count(Refusal.OVERFLOW),
        broken_pairs=refusals.count(Refusal.BROKEN_PAIR),
        own_seconds=seconds if alone else None,
        prompts=tuple(desk.prompts),
        kept=tuple(round(share, 3) for share in desk.kept),
    )
    ended = ended.model_copy(update={"summaries": desk.summaries})
    return SessionOutcome(ended, desk.usage, max(desk.prompts, default=0), wired)


async def _end(play: Play, post: Post, desk: Desk) -> SessionEnd:
    try:
        ended = await play(post)
    except Exception as error:  # noqa: BLE001 - each framework has errors of its own
        reason = REASONS.get(desk.stuck) if desk.stuck else None
        if reason is None and OVERFLOW.search(
            " ".join(kind.__name__ for kind in type(error).__mro__)
        ):
            reason = Reason.OVERFLOW
        return SessionEnd(reason=reason or Reason.ERROR, detail=name_error(error))
    if ended.answer == LOST:
        detail = f"the prompt of step {desk.lost_at} held neither the task nor a summary of it"
        return SessionEnd(reason=Reason.TASK_LOST, detail=detail)
    return ended
