"""One run as an iterator of events, whatever agent it is of: what is heard, what is closed, what is raised."""

import asyncio
import gc
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memagent import MemoryAgent, RunStore, ScriptedModel
from memagent.errors import ConfigError, ModelError
from memagent.events import Event, Settled
from memagent.messages import Usage
from memagent.run.agent import Agent
from memagent.run.caller import Caller
from memagent.run.log import Log
from memagent.run.plan import Plan, Settings
from memagent.run.stream import EventStream, Loop
from memagent.runstore import RunRecord
from memagent.tokens.byte_bound import ByteBound


class Host(Agent[Settings]):
    """An agent that calls no model."""

    settings = Settings()

    def __init__(self, store: RunStore) -> None:
        super().__init__(ScriptedModel([]), concurrency=1, limits=None, store=store)


class Nothing(Plan):
    """A plan for nothing."""

    def binding(self) -> dict[str, Any]:
        return {"questions": ["?"]}


class Counting(Loop[str]):
    """Makes so many effects, each with one event."""

    agent = "counting"

    def __init__(
        self, host: Host, events: int = 5, error: Exception | None = None, *, hangs: bool = False
    ) -> None:
        self.host, self.source = host, {"name": ""}
        self.events, self.error, self.hangs = events, error, hangs
        self.made = 0
        self.ended = False

    async def prepare(self, known: RunRecord | None) -> Plan:
        return Nothing(ScriptedModel(["m"]), ByteBound(), 9, Settings())

    async def run(self, log: Log, caller: Caller, *, fresh: bool) -> str:
        try:
            for place in range(self.events):
                if (await log.begin(f"act-{place}")).body is None:
                    self.made += 1
                    await log.commit(f"act-{place}", {}, Usage(), [Settled(chunk=place)])
            if self.hangs:
                await asyncio.Event().wait()
            if self.error is not None:
                raise self.error
            await log.commit("answer/q0", {"answer": "counted"})
            return "counted"
        finally:
            self.ended = True


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    store = RunStore(tmp_path / "runs.sqlite")
    yield Host(store)
    store.close()


def stream(loop: Loop[str], run_id: str | None = "r1") -> EventStream[str]:
    return EventStream(loop, run_id)


async def test_events_come_in_order_and_then_the_outcome(host: Host) -> None:
    run = stream(Counting(host))
    with pytest.raises(ConfigError, match="'r1' has not ended"):
        _ = run.outcome
    assert [event.seq async for event in run] == [0, 1, 2, 3, 4]
    assert run.outcome == "counted"
    assert [event async for event in run] == []
    assert await run.finish() == "counted"


async def test_a_run_waits_for_who_listens(host: Host) -> None:
    loop = Counting(host, 1000)
    run = stream(loop)
    for place in range(3):
        await anext(run)
        await asyncio.sleep(0.02)
        assert loop.made <= place + 2
    await run.aclose()
    assert loop.ended


async def test_who_is_cancelled_again_and_again_leaves_the_run_to_end(host: Host) -> None:
    class Lasting(Counting):
        async def run(self, log: Log, caller: Caller, *, fresh: bool) -> str:
            try:
                return await super().run(log, caller, fresh=fresh)
            finally:
                self.ended = False
                await asyncio.sleep(0.05)
                self.ended = True

    loop = Lasting(host, 1, hangs=True)
    heard = asyncio.Event()

    async def listen() -> None:
        async with stream(loop) as run:
            async for _ in run:
                heard.set()

    task = asyncio.create_task(listen())
    await heard.wait()
    while not task.done():  # as anyio's cancel scopes do
        task.cancel()
        await asyncio.sleep(0)
    gc.collect()
    for _ in range(200):
        if (await asyncio.to_thread(host.store.get, "r1")).status == "stopped":
            break
        await asyncio.sleep(0.01)
    assert loop.ended


async def test_a_run_without_a_listener_needs_no_task(host: Host) -> None:
    tasks: list[int] = []

    class Alone(Counting):
        async def run(self, log: Log, caller: Caller, *, fresh: bool) -> str:
            tasks.append(len(asyncio.all_tasks()))
            return await super().run(log, caller, fresh=fresh)

    run = stream(Alone(host))
    assert await run.finish() == "counted"
    assert tasks == [1]
    assert run.outcome == await run.finish() == "counted"
    assert [event async for event in run] == []


async def test_the_rest_can_be_left_to_finish(host: Host) -> None:
    loop = Counting(host)
    run = stream(loop)
    await anext(run)
    await anext(run)
    assert await run.finish() == "counted"
    assert (loop.made, loop.ended) == (5, True)


@pytest.mark.parametrize("events", [0, 2])
async def test_what_ends_a_run_is_raised_each_time(host: Host, events: int) -> None:
    run = stream(Counting(host, events, ModelError("no")))
    for place in range(events):
        assert (await anext(run)).seq == place
    for _ in range(2):
        with pytest.raises(ModelError):
            await anext(run)
        with pytest.raises(ModelError):
            _ = run.outcome
    with pytest.raises(ModelError):
        await stream(Counting(host, events, ModelError("no"))).finish()


async def test_leaving_stops_the_run_and_another_stream_takes_it_up(host: Host) -> None:
    loop = Counting(host, 1000)
    async with stream(loop) as run:
        async for event in run:
            if event.seq == 3:
                break
        assert not loop.ended
    assert loop.ended
    closed = r"has not ended: its stream was closed; agent\.resume\('r1'\) continues it"
    with pytest.raises(ConfigError, match=closed):
        await run.finish()
    again = Counting(host, 1000)
    async with stream(again) as run:
        assert [(await anext(run)).seq for _ in range(8)] == list(range(8))
    assert loop.made + again.made < 20


async def test_a_stream_that_was_closed_before_it_began_runs_nothing(host: Host) -> None:
    loop = Counting(host)
    run = stream(loop)
    await run.aclose()
    assert [event async for event in run] == []
    assert loop.made == 0
    assert await asyncio.to_thread(host.store.runs) == []


async def test_a_listener_that_is_cancelled_stops_the_run(host: Host) -> None:
    loop = Counting(host, 1, hangs=True)
    run = stream(loop)
    await anext(run)
    task = asyncio.ensure_future(anext(run))
    await asyncio.sleep(0.05)
    assert not loop.ended
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert loop.ended
    assert (await asyncio.to_thread(host.store.get, "r1")).status == "stopped"


async def test_a_stream_that_ended_or_was_closed_warns_of_nothing(host: Host) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ended = stream(Counting(host))
        events: list[Event] = [event async for event in ended]
        closed = stream(Counting(host, 9, hangs=True), "r2")
        await anext(closed)
        await closed.aclose()
        unread = stream(Counting(host), "r3")
        del ended, closed, unread
        gc.collect()
    assert len(events) == 5


BREAK = """
import asyncio, sys
from memagent import MemoryAgent, ScriptedModel

agent = MemoryAgent(ScriptedModel(lambda request: "noted.", window=2048), store=sys.argv[1])
events = agent.stream("The prince left. " * 500, "Who?", run_id="r1")

async def main():
    async for event in events:
        if event.type == "memory_updated":
            break
    if sys.argv[2] == "closed":
        await events.aclose()  # else the end of the event loop stops the run

asyncio.run(main())
print(agent.store.get("r1").status, agent.ask("The prince left. " * 500, "Who?", run_id="r1").answer)
agent.close()
"""


@pytest.mark.parametrize("how", ["closed", "left"])
def test_breaking_out_of_a_stream_ends_quietly(tmp_path: Path, how: str) -> None:
    command = [sys.executable, "-c", BREAK, str(tmp_path / "runs.sqlite"), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("stopped noted.\n", "")


async def test_a_reading_has_its_results_at_the_end(host: Host) -> None:
    model = ScriptedModel(lambda request: f"{request.kind}.", window=2048)
    run = MemoryAgent(model, store=host.store).stream("The prince left.", ["Who?", "Why?"])
    with pytest.raises(ConfigError, match="has not ended"):
        _ = run.result
    kinds = [event.type async for event in run]
    assert kinds.count("answered") == 2
    assert [result.question for result in run.results] == ["Who?", "Why?"]
    assert run.result is run.results[0]


def test_an_id_is_checked_or_made(host: Host) -> None:
    loop = Counting(host)
    assert stream(loop, None).run_id != stream(loop, None).run_id
    assert repr(stream(loop, "r7")) == "<EventStream of run 'r7'>"
    with pytest.raises(ConfigError, match=r"'\.\./x'"):
        stream(loop, "../x")
