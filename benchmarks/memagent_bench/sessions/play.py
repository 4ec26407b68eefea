"""Plays one game in one way."""

from __future__ import annotations

from functools import partial

from memagent.errors import BudgetError, ContextOverflow
from memagent.session.agent import ToolAgent
from memagent.threads import in_thread
from memagent_bench.sessions.arms import Arm
from memagent_bench.sessions.history import play_history
from memagent_bench.sessions.record import Reason
from memagent_bench.sessions.seat import Seat, SessionEnd


async def play(seat: Seat, arm: Arm) -> SessionEnd:
    """Plays a game to its end, and submits the answer.

    Raises:
        ConfigError: a setting can't work with the model.
        MemagentError: the model failed. A window that is too small isn't a failure, but ends the session.
    """
    try:
        ended = await (play_summary if arm.system == "summary" else play_history)(seat, arm)
    except (ContextOverflow, BudgetError) as error:
        return SessionEnd(reason=Reason.OVERFLOW, detail=str(error))
    if ended.answer is not None:
        await in_thread(seat.environment.finish, ended.answer)
    return ended


async def play_summary(seat: Seat, arm: Arm) -> SessionEnd:
    """Plays with `ToolAgent`, as a user would call it.

    Raises:
        MemagentError: see `ToolAgent.run`.
    """
    make = partial(
        ToolAgent,
        seat.model,
        working_context=arm.working_context,
        max_summaries=arm.summaries,
        max_steps=seat.max_steps,
        protocol=seat.protocol,
        prompts=seat.prompts,
        seed=seat.seed,
    )
    tools = seat.environment.tools
    # The game lives in this process: a killed session starts again from the beginning.
    async with make(tools, store=None) as agent:
        session = agent.session()
        result = await session.asend(seat.environment.task)
        while result.answer is not None and (more := seat.follow()) is not None:
            if seat.environment.tools is not tools:
                tools = seat.environment.tools
                session = make(tools, store=agent.store).session(session.run_id)
            result = await session.asend(more)
        return SessionEnd(
            answer=result.answer,
            reason=Reason(result.stop_reason.value),
            detail=result.detail,
            summaries=result.summaries,
        )
