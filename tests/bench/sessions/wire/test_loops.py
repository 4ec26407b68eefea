"""Other frameworks' loops work shifts as their users run them."""

from __future__ import annotations

import importlib.util
import socket
from typing import Any

import pytest
from blockbuster import BlockBuster
from tests.bench.sessions.wire.test_play import RIGHT

from memagent.errors import ConfigError
from memagent_bench.length_tokens import length_counter
from memagent_bench.sessions.counter import ChatCounter
from memagent_bench.sessions.record import Reason
from memagent_bench.sessions.wire.loops import LOOPS, load_loop
from memagent_bench.sessions.wire.play import SessionOutcome, work
from memagent_bench.shift.shift import SHIFTS

WINDOW = 8192
OTHERS = [name for name, loop in LOOPS.items() if loop.module != "own"]
FINISH = ("langchain-tuned", "langchain-tight", "deepagents")


@pytest.fixture(autouse=True)
def frameworks_may_block(blockbuster: BlockBuster) -> None:
    """They are measured as they are."""
    blockbuster.deactivate()


async def played(name: str, game: str = "shift", difficulty: int = 100) -> SessionOutcome:
    shift = SHIFTS[game](seed=42, difficulty=difficulty)
    return await work(
        load_loop(name),
        shift,
        ChatCounter(length_counter(None)),
        window=WINDOW,
        max_steps=2 * difficulty,
        alone=True,
    )


@pytest.mark.skipif(
    importlib.util.find_spec("deepagents") is not None, reason="the frameworks are installed"
)
@pytest.mark.parametrize("name", ["langchain", "agents", "pydantic-ai"])
def test_a_missing_framework_is_named_with_its_remedy(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{name}'.*memagent\[peers\].*leave it out"):
        load_loop(name)


@pytest.mark.extra
@pytest.mark.parametrize("name", OTHERS)
async def test_a_short_shift_is_finished_by_each(name: str) -> None:
    worked = await played(name, difficulty=10)
    assert worked.ended.reason is Reason.ANSWERED, worked.ended.detail
    assert worked.wired is not None
    assert (worked.wired.probes, worked.wired.repeated) == (RIGHT, 0)
    assert 7 <= len(worked.wired.prompts) == worked.usage.calls
    assert worked.ended.summaries == 0


@pytest.mark.extra
@pytest.mark.parametrize("name", FINISH)
async def test_summaries_of_all_that_leaves_finish_a_long_shift(name: str) -> None:
    worked = await played(name)
    assert worked.wired is not None
    assert worked.wired.probes == RIGHT, worked.ended.detail
    assert worked.wired.broken_pairs == 0
    assert worked.ended.summaries > 2


@pytest.mark.extra
async def test_what_only_clears_or_drops_forgets() -> None:
    for name in ("langchain-clear", "pydantic-ai"):
        wired = (await played(name)).wired
        assert wired is not None
        assert wired.probes is not None, name
        assert wired.probes.recall == 0
        assert wired.kept[-1] < 0.5 < wired.kept[0]
        assert (wired.broken_pairs, wired.repeated) == (0, 0)


@pytest.mark.extra
async def test_the_trimmer_waits_for_a_user_who_says_nothing() -> None:
    assert (await played("agents")).ended.reason is Reason.OVERFLOW


@pytest.mark.extra
async def test_the_defaults_lose_the_task() -> None:
    worked = await played("langchain", difficulty=300)
    assert worked.ended.reason is Reason.TASK_LOST
    assert "neither the task nor a summary" in worked.ended.detail


@pytest.mark.extra
@pytest.mark.parametrize("name", OTHERS)
async def test_one_result_larger_than_the_window(name: str) -> None:
    worked = await played(name, "shift-huge")
    survives = name == "deepagents"
    assert worked.ended.reason is (Reason.ANSWERED if survives else Reason.OVERFLOW)


@pytest.mark.extra
@pytest.mark.parametrize("name", OTHERS)
async def test_nothing_goes_to_the_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    connect = socket.socket.connect

    def watch(self: socket.socket, address: Any) -> None:
        if not (isinstance(address, tuple) and address[0] == "127.0.0.1"):
            asked.append(address)
            raise OSError("no network here")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", watch)
    for variable in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(variable, "true")
    monkeypatch.setenv("LANGSMITH_API_KEY", "k")
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    await played(name, difficulty=10)
    assert asked == []
