"""One run as an iterator of events, whatever agent it is of: what is heard, what is closed, what is raised."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from memagent.errors import ConfigError, ModelError
from memagent.events import Event, Settled
from memagent.run.stream import EventStream


class Counting(EventStream[str]):
    """Makes so many events."""

    def __init__(self, events: int = 5, error: Exception | None = None) -> None:
        super().__init__("r1")
        self.events, self.error = events, error
        self.made = 0
        self.closed = False

    async def _run(self) -> AsyncGenerator[Event]:
        try:
            for place in range(self.events):
                await asyncio.sleep(0)
                self.made += 1
                yield Settled(seq=place, chunk=0)
            if self.error is not None:
                raise self.error
            self._outcome = "through"
        finally:
            self.closed = True


async def test_events_come_in_order_and_then_the_outcome() -> None:
    stream = Counting()
    with pytest.raises(ConfigError, match="'r1' is not through"):
        _ = stream.outcome
    assert [event.seq async for event in stream] == [0, 1, 2, 3, 4]
    assert stream.outcome == "through"
    assert [event async for event in stream] == []
    assert await stream.finish() == "through"


async def test_a_run_waits_for_who_listens() -> None:
    stream = Counting(1000)
    await anext(stream)
    await asyncio.sleep(0.02)
    assert stream.made <= 3
    await stream.aclose()
    assert stream.closed


async def test_a_run_without_a_listener_needs_no_task() -> None:
    stream = Counting()
    assert await stream.finish() == "through"
    assert await stream.finish() == "through"
    assert stream.closed


async def test_the_rest_can_be_left_to_finish() -> None:
    stream = Counting()
    await anext(stream)
    assert await stream.finish() == "through"


async def test_what_ends_a_run_is_raised_each_time() -> None:
    stream = Counting(2, ModelError("no"))
    assert (await anext(stream)).seq == 0
    assert (await anext(stream)).seq == 1
    for _ in range(2):
        with pytest.raises(ModelError):
            await anext(stream)
    with pytest.raises(ModelError):
        await Counting(2, ModelError("no")).finish()


async def test_leaving_closes_the_run() -> None:
    async with Counting(1000) as stream:
        async for event in stream:
            if event.seq == 3:
                break
        assert not stream.closed
    assert stream.closed
    assert [event async for event in stream][1:] == []
    with pytest.raises(ConfigError):
        await stream.finish()


async def test_a_stream_that_was_closed_before_it_began_runs_nothing() -> None:
    stream = Counting()
    await stream.aclose()
    assert [event async for event in stream] == []
    assert stream.made == 0


async def test_a_listener_that_is_cancelled_stops_the_run() -> None:
    class Hanging(Counting):
        async def _run(self) -> AsyncGenerator[Event]:
            async for event in super()._run():
                yield event
            await asyncio.Event().wait()

    stream = Hanging(1)
    await anext(stream)
    task = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stream._task is not None
    assert stream._task.done()


def test_an_id_is_checked_or_made() -> None:
    class Named(Counting):
        def __init__(self, run_id: str | None) -> None:
            EventStream.__init__(self, run_id)

    assert Named(None).run_id != Named(None).run_id
    assert repr(Named("r7")) == "<Named of run 'r7'>"
    with pytest.raises(ConfigError, match=r"'\.\./x'"):
        Named("../x")
