"""memagent's own loops work shifts at a server."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest
from blockbuster import BlockBuster

from memagent_bench.length_tokens import length_counter
from memagent_bench.sessions.counter import ChatCounter
from memagent_bench.sessions.record import Reason
from memagent_bench.sessions.seat import SessionEnd
from memagent_bench.sessions.wire.loops import load_loop
from memagent_bench.sessions.wire.play import SessionOutcome, work
from memagent_bench.sessions.wire.post import Post
from memagent_bench.shift.rules import LOST
from memagent_bench.shift.shift import SHIFTS, Probes

RIGHT = Probes(recall=1, artifacts=1, continuation=1, decisions=1)
WINDOW = 12_288
"""Large enough that no ticket is clipped, so nothing may be lost."""


@pytest.fixture(autouse=True)
def loops_may_block(blockbuster: BlockBuster) -> None:
    """They are measured as they are."""
    blockbuster.deactivate()


async def played(
    play: Any, game: str = "shift", difficulty: int = 200, **how: Any
) -> SessionOutcome:
    given: dict[str, Any] = {"window": WINDOW, "max_steps": 500, "alone": True} | how
    shift = SHIFTS[game](seed=1, difficulty=difficulty)
    return await work(play, shift, ChatCounter(length_counter(None)), **given)


@pytest.mark.parametrize("game", SHIFTS)
@pytest.mark.parametrize("name", ["tool-agent", "tool-agent-tight", "buffer"])
async def test_nothing_is_lost(name: str, game: str) -> None:
    worked = await played(load_loop(name), game)
    wired = worked.wired
    assert wired is not None
    assert worked.ended.reason is Reason.ANSWERED, worked.ended.detail
    assert (wired.probes, wired.repeated) == (RIGHT, 0)
    assert (wired.overflows, wired.broken_pairs) == (0, 0)
    assert worked.ended.summaries > 2
    assert min(wired.kept) == 1
    assert worked.usage.calls == len(wired.prompts) + worked.ended.summaries
    assert max(wired.prompts) == worked.largest <= WINDOW


async def test_the_whole_history_overflows() -> None:
    worked = await played(load_loop("openai"))
    assert worked.ended.reason is Reason.OVERFLOW
    assert worked.wired is not None
    assert (worked.wired.overflows, worked.wired.probes) == (1, None)
    fits = await played(load_loop("openai"), window=100_000)
    assert fits.wired is not None
    assert fits.wired.probes == RIGHT


async def test_own_time_is_neither_the_servers_nor_that_of_others() -> None:
    async def busy(post: Post) -> SessionEnd:
        end = time.process_time() + 0.2
        while time.process_time() < end:
            pass
        return SessionEnd(answer="{}")

    async def played_whole(post: Post) -> SessionEnd:
        return await load_loop("openai")(post)

    worked = await played(busy)
    assert worked.wired is not None
    assert worked.wired.own_seconds == pytest.approx(0.2, abs=0.1)
    assert worked.wired.own_milliseconds is None  # there was no step
    crowded = await played(played_whole, difficulty=10, alone=False)
    assert crowded.wired is not None
    assert crowded.wired.own_seconds is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("ContextOverflowError", Reason.OVERFLOW),
        ("ModelContextWindowExceededError", Reason.OVERFLOW),
        ("ValueOfNoUse", Reason.ERROR),
    ],
)
async def test_a_frameworks_error_says_why_it_ended(name: str, reason: Reason) -> None:
    async def fails(post: Post) -> SessionEnd:
        raise type(name, (Exception,), {})("too much")

    ended = (await played(fails)).ended
    assert (ended.reason, ended.answer) == (reason, None)
    assert ended.detail == f"{name}: too much"


@pytest.mark.parametrize(("recovers", "reason"), [(False, Reason.OVERFLOW), (True, Reason.ERROR)])
async def test_a_recovered_overflow_does_not_explain_a_later_failure(
    recovers: bool, reason: Reason
) -> None:
    async def fails(post: Post) -> SessionEnd:
        tools = [tool.spec.to_openai() for tool in post.tools]
        async with httpx.AsyncClient() as client:
            for text in ("word " * WINDOW, *([post.task] if recovers else [])):
                messages = [{"role": "user", "content": text}]
                await client.post(
                    f"{post.url}/chat/completions", json={"messages": messages, "tools": tools}
                )
        raise ConnectionError("much later")

    worked = await played(fails)
    assert worked.ended.reason is reason
    assert worked.wired is not None
    assert worked.wired.overflows == 1


async def test_a_lost_task_is_no_answer() -> None:
    async def forgets(post: Post) -> SessionEnd:
        return SessionEnd(answer=LOST)

    worked = await played(forgets)
    assert worked.ended.reason is Reason.TASK_LOST
    assert worked.wired is not None
    assert worked.wired.probes is None
