"""`ToolAgent` at a game."""

import pytest
from tests.bench.sessions.seats import Seated

from memagent.errors import ServerFailed
from memagent_bench.sessions.arms import Arm
from memagent_bench.sessions.play import play
from memagent_bench.sessions.record import Reason

SIZE = 7000
"""Bytes: some ten turns fit behind the prompt."""


@pytest.mark.parametrize("protocol", ["native", "text"])
async def test_a_long_session_is_solved_within_its_context(protocol: str) -> None:
    table = Seated(difficulty=60, protocol=protocol)
    ended = await play(table.seat, Arm(system="summary", working_context=SIZE, summaries=100))
    assert ended.reason is Reason.ANSWERED, ended.detail
    assert table.seat.environment.verdict() == 1
    assert ended.summaries > 1
    assert max(table.prompts) <= SIZE


async def test_out_of_summaries_is_said() -> None:
    table = Seated(difficulty=60)
    ended = await play(table.seat, Arm(system="summary", working_context=SIZE, summaries=1))
    assert (ended.reason, ended.answer, ended.summaries) == (Reason.OUT_OF_SUMMARIES, None, 1)
    assert ended.detail


async def test_a_context_that_is_too_small_is_an_overflow() -> None:
    ended = await play(Seated().seat, Arm(system="summary", working_context=900, summaries=7))
    assert ended.reason is Reason.OVERFLOW
    assert "900" in ended.detail


async def test_a_failed_model_is_no_end() -> None:
    def down(request: object) -> Exception:
        return ServerFailed("down")

    table = Seated(replies=down)
    with pytest.raises(ServerFailed):
        await play(table.seat, Arm(system="summary", working_context=SIZE, summaries=7))
