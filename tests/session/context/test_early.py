"""A summary that was begun early is swapped in once it is due, or forgotten."""

import asyncio
from typing import Any

import pytest
from tests.session.context.strict import Gate, acts, call, fill, opened, result, step

from memagent.errors import OutOfSummaries, ServerBusy
from memagent.messages import ChatRequest
from memagent.models.scripted import ScriptedModel
from memagent.run.log import Log
from memagent.runstore import RunStore


async def until_asked(model: ScriptedModel) -> None:
    """Waits for the first request."""
    async with asyncio.timeout(10):
        while not model.requests:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_an_early_summary_is_begun_in_the_background_and_swapped_in() -> None:
    gate = Gate()
    buffer = await opened(model := ScriptedModel(gate), early=0.6)
    await fill(buffer, "do")
    assert len(model.requests) == 1
    waiting = asyncio.create_task(buffer.compact())
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.open.set()
    report = await waiting
    assert report is not None
    assert report.early
    assert report.usage.calls == 1
    begun = len(model.requests[0].messages)
    assert report.summary == f"summary of {begun}"
    # The turns since then are whole.
    assert all("result" in m.content for m in buffer.messages if m.role == "tool")
    assert sum(m.role == "tool" for m in buffer.messages) >= 2
    assert not buffer.due
    await buffer.aclose()


async def test_an_early_summary_that_failed_is_forgotten_and_made_again() -> None:
    gate = Gate(True)
    gate.open.set()
    buffer = await opened(model := ScriptedModel(gate), early=0.6)
    await fill(buffer, "do")
    report = await buffer.compact()
    assert report is not None
    assert not report.early
    assert (report.usage.calls, report.usage.retries) == (1, 1)
    assert "ConnectionFailed" in report.retried[0]
    assert len(model.requests) == 2
    await buffer.aclose()


async def test_closing_ends_an_early_summary() -> None:
    ended: list[bool] = []

    async def forever(request: ChatRequest) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        return "never"

    buffer = await opened(model := ScriptedModel(forever), early=0.6)
    await fill(buffer)
    await until_asked(model)
    assert ended == []
    await buffer.aclose()
    assert ended == [True]
    await buffer.aclose()


async def test_what_is_done_does_not_depend_on_how_many_summaries_there_may_be() -> None:
    """Else a session that is continued with more of them would not be the one that stopped."""
    gate = Gate()
    gate.open.set()
    few = await opened(stopped := ScriptedModel(gate), early=0.5, max_summaries=0)
    many = await opened(model := ScriptedModel(gate), early=0.5)
    for buffer in (few, many):
        while not buffer.due:  # the cheap tiers would be enough
            await step(buffer, 1, "the same page " * 20)
    before = few.messages
    with pytest.raises(OutOfSummaries, match="0 summaries have been written"):
        await few.compact()
    assert few.messages == before
    report = await many.compact()
    assert report is not None
    assert report.early
    assert stopped.requests == model.requests
    await few.aclose()
    await many.aclose()


async def test_none_is_begun_without_a_share_or_while_results_are_awaited() -> None:
    buffer = await opened(model := ScriptedModel(Gate()))
    await fill(buffer)
    await asyncio.sleep(0.05)
    assert model.requests == []
    buffer = await opened(model := ScriptedModel(Gate()), early=0.1)
    await buffer.append(acts(call("do", id="a"), call("do", id="b")))
    await buffer.append(result("x" * 900, "a"))
    await asyncio.sleep(0.05)
    assert model.requests == []
    await buffer.append(result("x", "b"))
    await until_asked(model)
    await buffer.aclose()


async def test_a_late_result_makes_an_early_summary_worthless() -> None:
    gate = Gate()
    buffer = await opened(model := ScriptedModel(gate), early=0.5)
    await buffer.append(acts(call("do", id="late")))
    while buffer.tokens < 0.5 * buffer.limit:
        await step(buffer, buffer.tokens, "x" * 150, "do")
    await until_asked(model)
    await buffer.append(result("at last", "late"))
    await fill(buffer, "do")
    gate.open.set()
    report = await buffer.compact()
    assert report is not None
    assert not report.early
    assert any("at last" in m.content for c in report.conversations for m in c.messages)
    assert report.usage.calls == 2  # the worthless one was paid
    await buffer.aclose()


@pytest.mark.parametrize("early", [None, 0.6], ids=["due", "early"])
async def test_what_a_run_committed_is_not_asked_for_again(early: float | None) -> None:
    """A failure of an early summary is met again too: the compaction behind it was made without it."""
    store = await asyncio.to_thread(RunStore, None)

    async def session(model: ScriptedModel) -> tuple[Any, ...]:
        async with (
            Log.open(store, "run", binding={"questions": ["?"]}, settings={}, source={}) as log,
            await opened(model, early=early, log=log, window=8192) as buffer,
        ):
            await fill(buffer, "do")
            report = await buffer.compact()
            assert report is not None
            costs = (report.usage.calls, report.usage.retries)
            return report.summary, report.early, buffer.messages, costs

    replies = ["found"] if early is None else [ServerBusy("later", attempts=2), "found"]
    *first, costs = await session(ScriptedModel(replies))
    assert first[:2] == ["found", False]
    assert costs == (1, 0 if early is None else 2)
    *again, _ = await session(model := ScriptedModel([]))
    assert again == first
    assert model.requests == []
    await asyncio.to_thread(store.close)
