"""What models promise whose engine in this process dies or ends: nobody gets it again, and no call is forgotten."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from tests.models.stand_in_engine import ASK, StandIn, StandInModel, no_tokenizer

from memagent.errors import EngineFailed
from memagent_engines.in_process import EngineModel
from memagent_engines.sharing import DrawOptions, EngineReply, SharedEngine


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> list[StandIn]:
    """The engines that a test starts."""
    no_tokenizer(monkeypatch)
    return StandInModel.watch(monkeypatch)


@pytest.fixture
def busy_pool() -> Iterator[threading.Event]:
    """Until it is set, the loop's pool of threads does nothing else."""
    go = threading.Event()
    yield go
    go.set()


async def draw(model: EngineModel) -> EngineReply:
    """As rollouts do: once more if the engine fails."""
    try:
        return await model.draw((1, 2), ASK)
    except EngineFailed:
        return await model.draw((1, 2), ASK)


async def until(engine: StandIn, calls: int) -> None:
    await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(engine.asked(calls), engine.loop))


async def test_calls_of_an_engine_that_dies_are_drawn_by_another(
    started: list[StandIn], busy_pool: threading.Event
) -> None:
    model = StandInModel("nobody/model")
    await model.window()
    (first,) = started
    first.answers = False
    calls = [asyncio.create_task(draw(model)) for _ in range(3)]
    await until(first, 3)
    pool = ThreadPoolExecutor(1)
    asyncio.get_running_loop().set_default_executor(pool)
    pool.submit(
        busy_pool.wait
    )  # so that nothing ends the dead engine before the calls are repeated
    first.loop.call_soon_threadsafe(first.die)
    done, _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    busy_pool.set()
    assert [call.result().text for call in done] == ["drawn by 2"] * len(done)
    assert [drawn.text for drawn in await asyncio.gather(*calls)] == ["drawn by 2"] * 3
    assert StandIn.events == ["start 1", "stop 1", "start 2"]
    await model.aclose()


async def test_a_forked_process_has_an_engine_of_its_own(
    started: list[StandIn], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = StandInModel("nobody/forked")
    assert (await draw(model)).text == "drawn by 1"
    parents = model._shared
    monkeypatch.setattr("memagent_engines.in_process.os.getpid", lambda: -1)
    assert (await draw(model)).text == "drawn by 2"
    await model.aclose()
    assert StandIn.events == ["start 1", "start 2", "stop 2"], "the first is the parent's"
    assert parents is not None
    await asyncio.to_thread(parents.close)


async def test_a_call_that_comes_while_its_engine_ends_fails_at_once(
    started: list[StandIn],
) -> None:
    model = StandInModel("nobody/model")
    shared, (engine, _) = await model._open()
    late = list[object]()

    def submit() -> None:
        try:
            late.append(shared.submit(engine.draw((1,), ASK, DrawOptions())))
        except EngineFailed as error:
            late.append(error)

    started[0].answers = False
    started[0].at_stop = submit
    await model.aclose()
    submit()
    assert [type(one) for one in late] == [EngineFailed] * 2
    assert "send it again" in str(late[0])


async def test_an_engine_that_cannot_be_stopped_leaves_nobody_waiting(
    started: list[StandIn],
) -> None:
    model = StandInModel("nobody/model")
    shared, (engine, _) = await model._open()
    started[0].answers = False
    call: Future[Any] = shared.submit(engine.draw((1,), ASK, DrawOptions()))
    await until(started[0], 1)

    def refuse() -> None:
        raise ProcessLookupError

    started[0].at_stop = refuse
    await model.aclose()
    assert call.cancelled()


async def test_the_next_engine_starts_when_the_last_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if whoever had to end it was cancelled before that."""
    first, second = (StandInModel("nobody/model") for _ in range(2))
    await first.window()
    close = SharedEngine.close
    monkeypatch.setattr(SharedEngine, "close", lambda _: None)
    await first.aclose()
    monkeypatch.setattr(SharedEngine, "close", close)
    await second.window()
    assert StandIn.events == ["start 1", "stop 1", "start 2"]
    await second.aclose()
