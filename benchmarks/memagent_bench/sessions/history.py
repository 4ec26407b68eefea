"""The alternatives to a summary: send the whole history, drop its oldest turns, mask old tool outputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from memagent.errors import WindowTooSmall
from memagent.messages import Completion, Message, Sampling, ToolCall, ToolSpec
from memagent.models.retry import count_in_thread
from memagent.prompts.reply import visible
from memagent.run.caller import Caller
from memagent.run.exchange import Exchange, Unusable
from memagent.session.context.turns import ToolResult, Turn, join_users, render_turns
from memagent.tokens import TokenCounter
from memagent.tools import Toolset
from memagent.tools.protocol import describe, read_calls
from memagent_bench.sessions.arms import Arm
from memagent_bench.sessions.record import Reason
from memagent_bench.sessions.seat import Seat, SessionEnd

LIMIT_SHARE = 0.95
"""Share of the working context that histories may fill."""
OUTPUT = 256
"""Tokens that the whole history leaves for a reply; the other systems leave what their working context has."""
ENDLESS = 1 << 62
"""Window that the whole history is counted against: it is sent until the server refuses it."""
MASKED = "[left out]"


@dataclass(frozen=True)
class Context:
    """What may be sent to the model."""

    arm: Arm
    prompt: tuple[Message, ...]
    """Messages that always come first."""
    counter: TokenCounter
    tools: tuple[ToolSpec, ...]
    """Tools that requests offer; empty if calls are sent as text."""

    def fit(self, turns: tuple[Turn, ...]) -> tuple[tuple[Turn, ...], int]:
        """Returns the turns that may stay, and the tokens left for a reply. Blocks.

        Raises:
            WindowTooSmall: the prompt and the last turn do not fit together.
        """
        size = self.arm.working_context
        if size is None:
            return turns, OUTPUT
        limit, prompt = int(LIMIT_SHARE * size), self._count(turns)
        if prompt > limit and self.arm.kept is not None:
            turns = mask_results(turns, self.arm.kept)
            prompt = self._count(turns)
        while prompt > limit and len(turns) > 1:
            turns = turns[1:]
            prompt = self._count(turns)
        if prompt >= size:
            raise WindowTooSmall(
                f"the prompt and one turn take {prompt} tokens, too many for a working context of {size}; use "
                f"a larger one"
            )
        return turns, size - prompt

    def messages(self, turns: Sequence[Turn]) -> tuple[Message, ...]:
        """Returns the prompt followed by the turns."""
        messages = render_turns(turns, "", native=bool(self.tools))
        return join_users((*self.prompt, *messages))

    def _count(self, turns: Sequence[Turn]) -> int:
        return self.counter.count_messages(self.messages(turns), tools=self.tools)


def mask_results(turns: tuple[Turn, ...], kept: int) -> tuple[Turn, ...]:
    """Replaces each output but the newest ones with a line."""
    newest = 0
    new_turns: list[Turn] = []
    for turn in reversed(turns):
        results: list[ToolResult | None] = []
        for result in reversed(turn.results):
            newest += 1
            results.append(result if newest <= kept else ToolResult(MASKED, fixed=True))
        new_turns.append(replace(turn, results=tuple(reversed(results))))
    return tuple(reversed(new_turns))


async def play_history(seat: Seat, arm: Arm) -> SessionEnd:
    """Acts until there is an answer.

    Raises:
        ContextOverflow: the history is over the model's window.
        WindowTooSmall: the working context cannot hold one turn.
        ModelError: a call failed.
    """
    environment, toolset = seat.environment, Toolset(seat.environment.tools)
    context = Context(arm=arm, counter=await seat.model.counter(), **opening(seat, toolset))
    window = ENDLESS if arm.working_context is None else arm.working_context
    caller = Caller(seat.model, context.counter, window, sampling=Sampling(), seed=seat.seed)
    turns: tuple[Turn, ...] = ()
    for step in range(seat.max_steps):
        turns, output = await count_in_thread(seat.model, context.fit, turns)
        exchange = Exchange(
            key=f"act-{step}",
            kind="act",
            messages=context.messages(turns),
            read=partial(read, toolset=toolset, step=step),
            most=output,
            tools=context.tools,
        )
        try:
            reply = await caller.ask(exchange)
        except Unusable as error:
            return SessionEnd(reason=Reason.UNUSABLE_REPLY, detail=f"step {step}: {error}")
        text, calls, problem = reply.value
        if not calls and problem is None:
            if (more := seat.follow()) is None:
                return SessionEnd(answer=text)
            toolset = Toolset(environment.tools)
            context = replace(context, **opening(seat, toolset))
            message = Message(role="assistant", content=text)
            turns = (
                *turns,
                Turn(2 * step, message),
                Turn(2 * step + 1, Message(role="user", content=more)),
            )
            continue
        results = [ToolResult((await toolset.run(call)).text) for call in calls]
        message = Message(role="assistant", content=reply.completion.text, tool_calls=calls)
        ids = tuple(call.id for call in calls)
        turns = (*turns, Turn(2 * step, message, ids, tuple(results)))
        if problem is not None:
            turns = (*turns, Turn(2 * step + 1, Message(role="user", content=problem)))
        if environment.over:
            return SessionEnd(answer=text)
    detail = f"no answer after {seat.max_steps} steps"
    return SessionEnd(reason=Reason.OUT_OF_STEPS, detail=detail)


def opening(seat: Seat, toolset: Toolset) -> dict[str, Any]:
    """Returns a context's prompt, worded as in `ToolAgent`, and tools."""
    prompts = seat.prompts
    if seat.protocol == "native":
        system = prompts.render("native")
    else:
        system = prompts.render("text", tools=describe(toolset.specs))
    prompt = (
        Message(role="system", content=system.strip()),
        Message(role="user", content=seat.environment.task),
    )
    return {"prompt": prompt, "tools": toolset.specs if seat.protocol == "native" else ()}


def read(
    completion: Completion, toolset: Toolset, step: int
) -> tuple[str, tuple[ToolCall, ...], str | None]:
    """Returns a reply's text, its calls, and the error if an intended call isn't valid.

    Raises:
        UnusableReply: the reply is empty.
    """
    text, calls, problem = completion.text, completion.tool_calls, None
    if not calls:
        text, calls, problem = read_calls(visible(completion), tuple(toolset))
    # A player that has forgotten may repeat itself, ids included.
    named = (
        call.model_copy(update={"id": f"c{step:06d}{place:02d}"})
        for place, call in enumerate(calls)
    )
    return text, tuple(named), problem
