"""The log of one run: who holds it, what is committed once, and in which order events are handed out."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.run.heard import HEARD, Heard, session, temporary

from memagent import threads
from memagent.errors import (
    ConfigError,
    EmptyDocument,
    ModelNotFound,
    RunBusy,
    RunMismatch,
    StoreError,
)
from memagent.events import Event
from memagent.messages import Usage
from memagent.run.log import Log
from memagent.runstore import RunStore

BINDING = {"agent": "tools", "questions": ["q"], "model": "m", "budget": {"window": 9, "prompt": 5}}


@pytest.fixture
def store() -> Iterator[RunStore]:
    store = temporary()
    yield store
    store.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[RunStore]:
    store = RunStore(tmp_path / "runs.sqlite")
    yield store
    store.close()


def opened(store: RunStore, binding: dict[str, Any] = BINDING, outlet: Heard | None = None):
    return Log.open(
        store, "r1", binding=binding, settings={"a": 1}, source={"name": "x"}, outlet=outlet
    )


async def status(store: RunStore) -> str:
    return (await asyncio.to_thread(store.get, "r1")).status


async def fails(store: RunStore, error: Exception, begun: str | None = None) -> None:
    """A session that ends with an error, after an event."""
    async with opened(store) as log:
        assert await status(store) == "running"
        await log.add(HEARD)
        if begun is not None:
            await log.begin(begun)
        raise error


# --- holding a run


async def test_a_log_marks_what_became_of_its_run(file: RunStore) -> None:
    async with opened(file) as log:
        assert await status(file) == "running"
        await log.commit("act-0", {})
    assert await status(file) == "stopped"  # no answer yet
    with pytest.raises(RuntimeError):
        await fails(file, RuntimeError())
    assert await status(file) == "stopped"
    async with opened(file) as log:
        await log.commit("answer/q0", {"answer": "42"})
    assert await status(file) == "finished"
    record = await asyncio.to_thread(file.get, "r1")
    assert (record.settings, record.source["name"]) == ({"a": 1}, "x")


@pytest.mark.parametrize("temporary", [True, False])
async def test_one_run_has_one_worker(file: RunStore, temporary: bool) -> None:
    store = await asyncio.to_thread(RunStore, None) if temporary else file
    async with opened(store):
        with pytest.raises(RunBusy) as busy:
            async with opened(store):
                pass
        assert await status(store) == "running"
    assert busy.value.run_id == "r1"
    async with opened(store):
        pass


async def test_a_binding_that_differs_is_refused_and_named(file: RunStore) -> None:
    async with opened(file):
        pass
    other = {**BINDING, "model": "n", "budget": {"window": 8, "prompt": 6}}
    with pytest.raises(RunMismatch, match=r"model was 'm', is 'n'") as mismatch:
        async with opened(file, other):
            pass
    assert mismatch.value.run_id == "r1"
    assert "budget.window was 9, is 8" in str(mismatch.value)
    assert "budget.prompt" not in str(mismatch.value)  # it follows from the others
    # What is the same through JSON is the same.
    async with opened(file, {**BINDING, "questions": ("q",)}):
        pass


async def test_a_new_run_that_failed_before_its_first_effect_is_dropped(file: RunStore) -> None:
    with pytest.raises(EmptyDocument) as error:
        await fails(file, EmptyDocument("nothing in it"))
    assert error.value.run_id is None
    assert await asyncio.to_thread(file.find, "r1") is None

    with pytest.raises(ConfigError) as kept:
        await fails(file, ConfigError("no"), begun="act-0")
    assert kept.value.run_id == "r1"
    assert await status(file) == "stopped"


async def test_a_new_run_at_a_wrong_address_is_dropped(file: RunStore) -> None:
    with pytest.raises(ModelNotFound) as error:
        await fails(file, ModelNotFound("404"), begun="act-0")
    assert error.value.run_id is None
    assert await asyncio.to_thread(file.find, "r1") is None

    async with opened(file) as log:
        await log.commit("act-0", {})
    with pytest.raises(ModelNotFound) as kept:
        await fails(file, ModelNotFound("404"), begun="act-1")
    assert kept.value.run_id == "r1"


async def test_a_run_that_was_there_is_not_dropped(file: RunStore) -> None:
    async with opened(file):
        pass
    with pytest.raises(EmptyDocument) as error:
        await fails(file, EmptyDocument("nothing in it"))
    assert error.value.run_id == "r1"
    assert await status(file) == "stopped"


async def test_an_error_of_others_leaves_a_run_without_effects(file: RunStore) -> None:
    with pytest.raises(RuntimeError):
        await fails(file, RuntimeError())
    assert await status(file) == "stopped"


# --- effects


async def test_an_effect_is_begun_committed_and_handed_back(store: RunStore) -> None:
    log, heard = session(store)
    begun = await log.begin("tool-3-0")
    assert (begun.body, begun.sent, begun.wasted) == (None, 0, 0)
    assert await log.effect("tool-3-0") is None
    begun = await log.begin("tool-3-0")
    assert (begun.body, begun.sent) == (None, 1)
    await log.commit("tool-3-0", {"text": "a"}, Usage(calls=1), [HEARD])
    log, later = session(store)
    assert (await log.begin("tool-3-0")).body == await log.effect("tool-3-0") == {"text": "a"}
    assert [len(ear.events) for ear in (heard, later)] == [1, 0]


async def test_what_follows_from_others_is_committed_once(store: RunStore) -> None:
    log, heard = session(store)
    assert await log.effect("answer/q0") is None
    await log.commit("answer/q0", {"answer": "42"}, events=[HEARD])
    await log.commit("answer/q0", {"answer": "43"}, events=[HEARD])
    assert len(heard.events) == 1
    assert await log.effect("answer/q0") == {"answer": "42"}


async def test_what_led_to_nothing_is_paid_for_and_heard_of(store: RunStore) -> None:
    log, heard = session(store)
    await log.begin("act-0")
    await log.write(store.spend, "act-0", Usage(retries=1), [HEARD], wasted=1, again=True)
    begun = await log.begin("act-0")
    assert (begun.body, begun.sent, begun.wasted) == (None, 1, 1)
    await log.write(store.spend, "act-0", Usage(retries=2), [HEARD], wasted=1, again=False)
    assert (await log.begin("act-0")).sent == 0
    await log.commit("act-0", {}, Usage(calls=1))
    assert await asyncio.to_thread(store.usage, "r1") == Usage(calls=1, retries=3)
    assert [event.seq for event in heard.events] == [0, 1]


# --- events


async def test_a_replay_hands_out_what_was_committed_verbatim(store: RunStore) -> None:
    log, heard = session(store)
    assert await log.replay() == 0
    for number in range(3):
        await log.commit(f"act-{number}", {}, events=[HEARD, HEARD])
    await log.add(HEARD)
    again, later = session(store)
    assert await again.replay() == 7
    assert later.events == heard.events
    await again.add(HEARD)
    assert [event.seq for event in later.events] == list(range(8))


async def test_without_an_outlet_events_are_in_the_store_alone(store: RunStore) -> None:
    log = Log(store, "r1")
    await log.add(HEARD, HEARD)
    assert await asyncio.to_thread(store.last_seq, "r1") == 1


async def test_a_log_waits_until_its_events_are_taken(store: RunStore) -> None:
    taken = asyncio.Event()

    class Slow(Heard):
        async def join(self) -> None:
            await taken.wait()

    slow = Slow()
    task = asyncio.create_task(Log(store, "r1", slow).add(HEARD))
    await asyncio.sleep(0.05)
    assert not task.done()
    assert await asyncio.to_thread(store.last_seq, "r1") == 0  # committed before it is heard of
    taken.set()
    await task
    assert len(slow.events) == 1


async def test_events_come_in_the_order_of_the_log(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads.widen(4)
    log, heard = session(store)
    commit = RunStore.commit

    def slow(self: RunStore, run: str, key: str, *rest: Any) -> list[Event]:
        events = commit(self, run, key, *rest)
        time.sleep(0.003 if key.endswith("0") else 0)
        return events

    monkeypatch.setattr(RunStore, "commit", slow)

    async def effect(place: int) -> None:
        await log.begin(f"tool-0-{place}")
        await log.commit(f"tool-0-{place}", {}, Usage(), [HEARD, HEARD])

    await asyncio.gather(*(effect(place) for place in range(50)))
    assert [event.seq for event in heard.events] == list(range(100))


async def test_a_commit_that_is_cancelled_is_heard_of(store: RunStore) -> None:
    log, heard = session(store)
    task = asyncio.create_task(log.commit("act-0", {"n": 0}, events=[HEARD]))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await log.effect("act-0") == {"n": 0}
    await log.add(HEARD)  # with the next one, and before it
    assert [event.seq for event in heard.events] == [0, 1]


async def test_a_store_that_fails_is_heard_of(store: RunStore) -> None:
    log, heard = session(store)
    await log.begin("act-0")
    await asyncio.to_thread(store.close)
    with pytest.raises(StoreError):
        await log.commit("act-0", {}, Usage(), [HEARD])
    assert heard.events == []
