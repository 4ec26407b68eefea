"""The whole history, and what is done without a summary."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from tests.bench.sessions.seats import Seated

from memagent.messages import ChatRequest, Message, ToolCall
from memagent_bench.sessions.arms import Arm
from memagent_bench.sessions.history import MASKED, mask_results, play_history
from memagent_bench.sessions.play import play
from memagent_bench.sessions.record import Reason

FULL = Arm(system="full")
DROP = Arm(system="drop-oldest", working_context=4000)
MASK = Arm(system="mask", working_context=4000, kept=3)


def paired(messages: Sequence[Message]) -> bool:
    """Every call has its result right behind it, and nothing else is a result."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            if not waiting or message.tool_call_id != waiting.pop(0):
                return False
            continue
        if waiting:
            return False
        waiting = [call.id for call in message.tool_calls]
    return not waiting


@pytest.mark.parametrize("protocol", ["native", "text"])
async def test_the_whole_history_is_sent_each_time(protocol: str) -> None:
    table = Seated(protocol=protocol)
    ended = await play(table.seat, FULL)
    assert ended.reason is Reason.ANSWERED
    assert table.seat.environment.verdict() == 1
    requests = table.paid.requests
    assert len(requests) == 20 + 1
    for before, after in pairwise(requests):
        assert after.messages[: len(before.messages)] == before.messages
        assert len(after.messages) == len(before.messages) + 2
        assert paired(after.messages)
    assert all(bool(request.tools) == (protocol == "native") for request in requests)


async def test_a_history_over_the_window_is_an_end_and_no_wrong_answer() -> None:
    table = Seated(window=3000)
    ended = await play(table.seat, FULL)
    assert (ended.reason, ended.answer) == (Reason.OVERFLOW, None)
    assert "exceeds its window of 3000" in ended.detail
    assert max(table.prompts) <= 3000
    assert not table.seat.environment.over


async def test_the_oldest_turns_leave_whole_and_the_prompt_stays() -> None:
    table = Seated(difficulty=60)
    ended = await play(table.seat, DROP)
    assert ended.reason is Reason.OUT_OF_STEPS  # who forgets asks again
    requests = table.paid.requests
    assert len(requests) == 100
    assert {request.messages[:2] for request in requests} == {requests[0].messages}
    assert all(paired(request.messages) for request in requests)
    assert 0.8 * 3800 < max(table.prompts) <= 3800
    longest = max(len(request.messages) for request in requests)
    assert len(requests[-1].messages) >= longest - 4


async def test_old_outputs_are_masked_when_the_context_is_full() -> None:
    table = Seated(difficulty=60)
    await play(table.seat, MASK)
    prompts = [[m.content for m in r.messages if m.role == "tool"] for r in table.paid.requests]
    begun = next(n for n, shown in enumerate(prompts) if MASKED in shown)
    assert prompts[begun][-3:].count(MASKED) == 0
    assert set(prompts[begun][:-3]) == {MASKED}
    assert len(prompts[begun]) == begun  # nothing has left yet
    assert len(prompts[-1]) < 99  # later the oldest did
    assert max(table.prompts) <= 3800
    assert all(paired(request.messages) for request in table.paid.requests)


async def test_a_context_that_holds_no_turn_ends_the_session() -> None:
    ended = await play(Seated().seat, Arm(system="drop-oldest", working_context=500))
    assert ended.reason is Reason.OVERFLOW
    assert "use a larger one" in ended.detail


async def test_ids_are_made_anew_and_malformed_calls_are_answered() -> None:
    call = ToolCall(id="same", name="compare", arguments='{"first": 1, "second": 2}')

    def replies(request: ChatRequest) -> object:
        made = sum(message.role == "assistant" for message in request.messages)
        return [call, (call, call), "<call>{oops</call>", "7"][made]

    table = Seated(replies=replies)
    ended = await play_history(table.seat, FULL)
    assert ended.answer == "7"
    last = table.paid.requests[-1].messages
    assert paired(last)
    ids = [call.id for message in last for call in message.tool_calls]
    assert len(set(ids)) == 3
    assert "could not be read" in last[-1].content


async def test_done_ends_the_session() -> None:
    done = ToolCall(id="x", name="done", arguments='{"answer": "0"}')
    table = Seated(replies=lambda _: done)
    ended = await play(table.seat, FULL)
    assert ended.reason is Reason.ANSWERED
    assert len(table.paid.requests) == 1
    assert table.seat.environment.verdict() == 0


async def test_an_empty_reply_is_asked_for_again_as_by_the_agent() -> None:
    table = Seated(replies=lambda _: "")
    ended = await play(table.seat, FULL)
    assert [request.thinking for request in table.paid.requests] == [None, False, False]
    assert (ended.reason, ended.answer) == (Reason.UNUSABLE_REPLY, None)


def test_nothing_is_masked_twice_or_lost() -> None:
    assert mask_results((), 3) == ()
