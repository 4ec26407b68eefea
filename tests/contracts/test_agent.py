"""What holds for every agent: one set of tests for memagent's own and for one that a user wrote."""

import asyncio
import gc
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from tests.contracts.agents import AGENTS, Job, hashing

from memagent import ChatRequest, Completion, Limits, RunStore, StopReason, Usage
from memagent.errors import (
    ConfigError,
    ConnectionFailed,
    MemagentError,
    RunBusy,
    RunMismatch,
    StoreError,
)
from memagent.events import Event, event_adapter
from memagent.tokens import ByteBound
from memagent.trajectory import Conversation

WITH_SYNC_ENTRY = pytest.mark.parametrize(
    "job", [job for job in AGENTS if job.run is not None], ids=lambda job: job.name
)


@pytest.fixture(params=AGENTS, ids=lambda job: job.name)
def job(request: pytest.FixtureRequest) -> Job:
    return request.param


@pytest.fixture
def store(tmp_path: Path):
    store = RunStore(tmp_path / "runs.sqlite")
    yield store
    store.close()


class Killed(BaseException):
    """Stands for a process that dies in the middle of a call."""


class Count:
    """Counts the requests of a model, and fails at one of them."""

    def __init__(self, job: Job, at: int | None = None, error: Any = Killed) -> None:
        self.job, self.at, self.error = job, at, error
        self.requests: list[ChatRequest] = []

    def __call__(self, request: ChatRequest) -> Any:
        self.requests.append(request)
        if len(self.requests) - 1 == self.at:
            raise self.error
        return self.job.respond(request)


def finish(job: Job, store: RunStore | None, run_id: str = "r", **options: Any) -> Any:
    agent = job.agent(store, **options)
    return outcome(asyncio.run(job.open(agent, run_id).finish()))


def outcome(results: Any) -> list[Any]:
    return results if isinstance(results, list) else [results]


def plain(events: Any) -> list[dict[str, Any]]:
    """Events without what differs from session to session."""
    return [
        event_adapter.dump_python(event, mode="json", exclude={"usage", "run_id"})
        for event in events
    ]


def said(results: list[Any]) -> list[Any]:
    """What results say, beside what it cost."""
    free = ("usage", "run_id")
    return [{k: v for k, v in r.to_dict().items() if k not in free} for r in results]


async def collect(stream: Any, most: int | None = None) -> list[Event]:
    events: list[Event] = []
    async with stream:
        async for event in stream:
            events.append(event)
            if len(events) == most:
                break
    return events


# --- run and stream


def test_a_run_answers_and_is_kept(job: Job, store: RunStore) -> None:
    results = finish(job, store)
    assert all(result.answer for result in results)
    assert {result.stop_reason for result in results} == {StopReason.ANSWERED}
    assert store.get("r").status == "finished"
    usage = sum((result.usage for result in results), Usage())
    assert usage == store.usage("r")
    assert usage.calls > 4


def test_a_temporary_store_gives_the_same(job: Job, store: RunStore) -> None:
    assert said(finish(job, None)) == said(finish(job, store))


def test_events_are_the_log(job: Job, store: RunStore) -> None:
    agent = job.agent(store)
    events = asyncio.run(collect(job.open(agent, "r")))
    assert events == list(store.events("r"))
    assert [event.seq for event in events] == list(range(len(events)))
    assert events[-1].type == "answered"


def test_a_reader_that_is_slow_holds_the_run_up(job: Job, store: RunStore) -> None:
    async def run() -> None:
        async with job.open(job.agent(store), "r") as stream:
            first = await anext(stream)
            await asyncio.sleep(0.05)
            # What was committed together with it or right behind it, and no more.
            last, status = await asyncio.to_thread(
                lambda: (store.last_seq("r"), store.get("r").status)
            )
            assert last <= first.seq + 8
            assert status == "running"

    asyncio.run(run())


@WITH_SYNC_ENTRY
def test_sync_callers_hear_of_each_event(job: Job, store: RunStore) -> None:
    assert job.run is not None
    heard = list[Event]()
    results = outcome(job.run(job.agent(store), "r", heard.append))
    assert heard == list(store.events("r"))
    assert said(results) == said(finish(job, None))


@WITH_SYNC_ENTRY
def test_what_a_callback_raises_stops_the_run(job: Job, store: RunStore) -> None:
    def refuse(event: Event) -> None:
        if event.seq == 2:
            raise ZeroDivisionError

    assert job.run is not None
    with pytest.raises(ZeroDivisionError) as caught:
        job.run(job.agent(store), "r", refuse)
    assert any(job.again in note for note in caught.value.__notes__)
    assert store.get("r").status == "stopped"
    assert said(finish(job, store)) == said(finish(job, None))


def test_memories_stay_within_their_budget(store: RunStore) -> None:
    readers = [job for job in AGENTS if not job.name.startswith(("tools", "extract"))]

    def wordy(request: ChatRequest) -> str:
        return " ".join(f"{number}: {hashing(request)}" for number in range(99))

    for job in readers:
        finish(job, store, job.name, respond=wordy)
        most = store.get(job.name).binding["budget"]["memory"]
        updates = [e for e in store.events(job.name) if e.type == "memory_updated"]
        assert len(updates) > 1
        for update in updates:
            assert most / 2 < ByteBound().count(update.memory) == update.tokens <= most


def test_a_reply_is_kept_with_its_cost_and_fields_that_nobody_reads(
    job: Job, store: RunStore
) -> None:
    extra: dict[str, Any] = {"provider": {"left": [3, None]}}

    def reply(request: ChatRequest) -> Completion:
        reply = job.respond(request)
        said, calls = (reply, ()) if isinstance(reply, str) else ("", reply)
        return Completion(text=said, tool_calls=calls, extra=extra)

    (result, *_) = finish(job, store, respond=reply)
    key = "act-0" if job.name.startswith("tools") else "update-0/q0"
    body = store.effect("r", key)
    assert body is not None
    kept = Completion.model_validate({"text": ""} | body["reply"])
    assert (kept.extra, kept.usage.calls) == (extra, 1)
    assert min(kept.usage.prompt_tokens, kept.usage.completion_tokens) > 0
    first = next(m for m in result.trajectory.conversations[0].messages if m.role == "assistant")
    assert first.extra == ({} if job.name == "tools-text" else extra)  # there only texts travel


# --- resume


def test_a_run_that_is_left_after_any_event_resumes(job: Job, tmp_path: Path) -> None:
    undisturbed = RunStore(tmp_path / "whole.sqlite")
    whole = finish(job, undisturbed)
    events = plain(undisturbed.events("r"))
    calls = undisturbed.usage("r").calls
    for left in range(1, len(events)):
        store = RunStore(tmp_path / f"{left}.sqlite")
        taken = asyncio.run(collect(job.open(job.agent(store), "r"), left))
        count = Count(job)
        again = asyncio.run(collect(job.open(job.agent(store, count), "r")))
        assert again[: len(taken)] == taken
        assert plain(again) == events
        usage = store.usage("r")
        assert usage.calls == calls
        assert said(finish(job, store)) == said(whole)
        store.close()
    undisturbed.close()


def test_a_run_that_is_killed_in_any_call_resumes(job: Job, tmp_path: Path) -> None:
    count = Count(job)
    undisturbed = RunStore(tmp_path / "whole.sqlite")
    whole = finish(job, undisturbed, respond=count)
    events, calls = plain(undisturbed.events("r")), len(count.requests)
    for place in range(calls):
        store = RunStore(tmp_path / f"{place}.sqlite")
        killed = Count(job, place)
        with pytest.raises((Killed, asyncio.CancelledError)):
            finish(job, store, respond=killed)
        again = Count(job)
        results = finish(job, store, respond=again)
        assert said(results) == said(whole)
        if job.name != "memory-many" and job.name != "own":  # these have calls side by side
            assert plain(store.events("r")) == events
            assert len(killed.requests) + len(again.requests) == calls + 1
        usage = store.usage("r")
        assert usage.calls == undisturbed.usage("r").calls
        assert 1 <= usage.repeated <= 16
        assert len(killed.requests) + len(again.requests) <= calls + usage.repeated
        store.close()
    undisturbed.close()


def test_a_finished_run_is_given_back_without_a_call(job: Job, store: RunStore) -> None:
    whole = finish(job, store)
    count = Count(job)
    assert said(finish(job, store, respond=count)) == said(whole)
    assert count.requests == []


# --- what stops a run


def test_a_limit_on_calls_stops_anywhere_and_resumes(job: Job, tmp_path: Path) -> None:
    whole = finish(job, None)
    calls = sum(result.usage.calls for result in whole)
    for most in range(calls):
        store = RunStore(tmp_path / f"{most}.sqlite")
        count = Count(job)
        stopped = finish(job, store, respond=count, limits=Limits(calls=most))
        assert len(count.requests) == most
        assert StopReason.LIMIT in {result.stop_reason for result in stopped}
        for result in stopped:
            if result.stop_reason is StopReason.LIMIT:
                assert result.answer is None
                assert f"calls={most}" in result.detail
        assert store.get("r").status == "stopped"
        assert said(finish(job, store)) == said(whole)
        assert store.usage("r").calls == calls
        store.close()


def test_replies_without_usage_count_against_a_limit_on_tokens(job: Job, store: RunStore) -> None:
    def silent(request: ChatRequest) -> Completion:
        reply = job.respond(request)
        said, calls = (reply, ()) if isinstance(reply, str) else ("", reply)
        return Completion(text=said, tool_calls=calls, usage=Usage(calls=1))

    (first, *_) = finish(job, store, respond=silent, limits=Limits(tokens=4000))
    assert first.stop_reason is StopReason.LIMIT
    assert first.usage.prompt_tokens > 1000


def test_unusable_replies_stop_the_run_and_nothing_is_lost(job: Job, store: RunStore) -> None:
    count = Count(job)

    def empty(request: ChatRequest) -> Any:
        if len(count.requests) < 3:
            return count(request)
        count.requests.append(request)
        return "  "

    stopped = finish(job, store, respond=empty)
    assert StopReason.UNUSABLE_REPLY in {result.stop_reason for result in stopped}
    assert any("the reply is empty, 3 times in a row" in result.detail for result in stopped)
    tried = [request for request in count.requests[3:] if request.kind == count.requests[3].kind]
    assert len({request.seed for request in tried}) >= 3
    assert any(request.thinking is False for request in tried)
    assert store.usage("r").retries >= 3
    assert all(result.answer for result in finish(job, store))


def test_a_failed_call_is_an_error_and_the_run_resumes(job: Job, store: RunStore) -> None:
    broken = Count(job, 2, ConnectionFailed("no server at ...: is it running?", attempts=4))
    with pytest.raises(ConnectionFailed) as caught:
        finish(job, store, respond=broken)
    assert caught.value.run_id == "r"
    assert store.get("r").status == "stopped"
    assert store.usage("r").retries == 4
    assert said(finish(job, store)) == said(finish(job, None))


def test_cancelling_lets_go_of_the_run(job: Job, store: RunStore) -> None:
    async def run() -> None:
        called = asyncio.Event()

        async def hang(request: ChatRequest) -> Any:
            called.set()
            await asyncio.sleep(60)

        task = asyncio.create_task(job.open(job.agent(store, hang), "r").finish())
        await called.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert store.get("r").status == "stopped"
    assert said(finish(job, store)) == said(finish(job, None))


# --- what is refused


def test_two_at_once_is_refused(job: Job, store: RunStore) -> None:
    async def run() -> None:
        async with job.open(job.agent(store), "r") as stream:
            await anext(stream)
            with pytest.raises(RunBusy, match="'r'"):
                await job.open(job.agent(store), "r").finish()

    asyncio.run(run())
    assert all(result.answer for result in finish(job, store))


def test_the_stored_answer_is_read_while_another_holds_the_run(job: Job, store: RunStore) -> None:
    results, events = finish(job, store), list(store.events("r"))
    with store.hold("r"):
        assert said(finish(job, store)) == said(results)
        with pytest.raises(RunMismatch, match="seed was 0, is 1"):
            finish(job, store, seed=1)
    assert list(store.events("r")) == events


def test_other_settings_are_refused_and_named(job: Job, store: RunStore) -> None:
    finish(job, store, limits=Limits(calls=1))
    with pytest.raises(RunMismatch, match="seed was 0, is 1"):
        finish(job, store, seed=1)


def test_a_run_of_another_agent_is_refused(job: Job, store: RunStore) -> None:
    other = AGENTS[0 if job.name.startswith(("tools", "extract")) else -2]
    finish(other, store)
    with pytest.raises(
        RunMismatch, match=r"is an? (tool session: resume it with ToolAgent|reading|extraction)"
    ):
        finish(job, store)


@pytest.mark.parametrize("asked", ["", " \n", "half \ud800", 3, None])
def test_bad_input_is_refused_and_leaves_no_run(job: Job, store: RunStore, asked: Any) -> None:
    with pytest.raises((ConfigError, TypeError)) as caught:
        asyncio.run(job.open(job.agent(store), "r", asked).finish())
    assert not isinstance(caught.value, TypeError) or asked in (3, None)
    assert store.find("r") is None


@pytest.mark.parametrize("run_id", ["", "../x", "a b", "x" * 65, "-x"])
def test_bad_run_ids_are_refused(job: Job, store: RunStore, run_id: str) -> None:
    with pytest.raises(ConfigError, match="run id"):
        job.open(job.agent(store), run_id)


def test_a_window_that_is_too_small_leaves_no_run(job: Job, store: RunStore) -> None:
    size = "working_context" if job.name.startswith("tools") else "window"
    options: Any = {size: 60}
    with pytest.raises(MemagentError, match="60"):
        finish(job, store, **options)
    assert store.find("r") is None


# --- results


def test_results_can_be_pickled_and_turned_into_json(job: Job, store: RunStore) -> None:
    for result in finish(job, store):
        fields = json.loads(json.dumps(result.to_dict()))
        assert fields["answer"] == result.answer
        assert fields["usage"]["calls"] == result.usage.calls
        assert fields["stop_reason"] == "answered"
        copied = pickle.loads(pickle.dumps(result))
        assert said([copied]) == said([result])
        assert list(copied.trajectory.conversations) == list(result.trajectory.conversations)
        assert result.run_id in repr(result)
        assert result.run_id in result._repr_html_()


def test_trajectories_are_readable_after_the_agent_is_closed(job: Job, tmp_path: Path) -> None:
    stores: tuple[Any, ...] = (None, tmp_path / "runs.sqlite")
    for store in stores:
        with job.agent(store) as agent:
            results = outcome(asyncio.run(job.open(agent, "r").finish()))
        for result in results:
            assert len(result.trajectory.conversations) > 0
            assert all(isinstance(c, Conversation) for c in result.trajectory.conversations)


def test_prices_give_a_cost(job: Job, store: RunStore) -> None:
    limits = Limits(prompt_price=2.0, completion_price=10.0)
    for result in finish(job, store, limits=limits):
        usage = result.usage
        cost = (usage.prompt_tokens * 2 + usage.completion_tokens * 10) / 1_000_000
        assert result.cost == pytest.approx(cost)


# --- the agent itself


def test_the_same_agent_over_another_model(job: Job, store: RunStore) -> None:
    agent, count = job.agent(store), Count(job)
    other = agent.with_model(job.agent(None, count).model.inner, seed=7)
    assert other.store is agent.store
    results = outcome(asyncio.run(job.open(other, "other").finish()))
    assert count.requests
    assert all(result.answer for result in results)
    assert store.get("other").binding["seed"] == 7
    assert store.get("other").binding["model"] == agent.model.name
    finish(job, store)
    assert store.get("r").binding["seed"] == 0


def test_a_stream_that_is_dropped_lets_go_of_its_run(job: Job, store: RunStore) -> None:
    async def run() -> None:
        stream = job.open(job.agent(store), "r")
        await anext(stream)
        del stream
        gc.collect()
        for _ in range(200):
            await asyncio.sleep(0.01)
            if (await asyncio.to_thread(store.get, "r")).status == "stopped":
                return
        raise AssertionError("the run is still held")

    with pytest.warns(ResourceWarning, match="'r' was dropped before it ended.*aclose"):
        asyncio.run(run())
    assert all(result.answer for result in finish(job, store))


def test_a_store_that_cannot_be_written_is_a_typed_error(job: Job, tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs.sqlite")

    def close(request: ChatRequest) -> Any:
        store.close()
        return job.respond(request)

    with pytest.raises(StoreError, match="closed"):
        finish(job, store, respond=close)


def test_limits_are_checked(job: Job) -> None:
    with pytest.raises(ConfigError, match=r"limits must be a memagent\.Limits, got 3"):
        job.agent(None, limits=3)
