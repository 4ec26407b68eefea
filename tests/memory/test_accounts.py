"""What calls cost is counted once, whatever they lead to and in however many sessions."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memagent import (
    ChatRequest,
    Completion,
    Limits,
    MemoryAgent,
    RunStore,
    ScriptedModel,
    StopReason,
    Usage,
)
from memagent.errors import ConnectionFailed, DocumentNotFound
from memagent.messages import Failure
from memagent.runstore.database import Database
from memagent.tokens import TokenCounter
from memagent.tokens.byte_bound import ByteBound

TEXT = "The prince left for Moscow. " * 200


def agent(
    store: RunStore | None, reply: Any, counter: TokenCounter | None = None, **settings: Any
) -> MemoryAgent:
    model = ScriptedModel(reply, window=2048, counter=counter)
    return MemoryAgent(model, store=store, **settings)


def sent(agent: MemoryAgent) -> list[ChatRequest]:
    """The requests that reached the scripted model at the bottom."""
    model = agent.model
    while not isinstance(model, ScriptedModel):
        model = model.inner  # type: ignore[attr-defined]
    return model.requests


def fine(request: ChatRequest) -> str:
    return f"{request.kind}."


def test_sessions_that_end_by_themselves_repeat_nothing(store: RunStore) -> None:
    for session in range(1, 4):
        result = agent(store, lambda _: "").ask(TEXT, "Who?", run_id="r1")
        assert result.usage == Usage(retries=3 * session, retry_tokens=result.usage.retry_tokens)
    limited = agent(store, fine, limits=Limits(calls=9 + 2)).ask(TEXT, "Who?", run_id="r1")
    assert (limited.stop_reason, limited.usage.calls) == (StopReason.LIMIT, 2)
    assert agent(store, fine).ask(TEXT, "Who?", run_id="r1").usage.repeated == 0


def test_costs_of_many_questions_are_added_up_in_one_pass(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, read = list[str](), Database.read

    def counting(self: Database, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        queries.append(sql)
        return read(self, sql, values)

    monkeypatch.setattr(Database, "read", counting)
    results = agent(store, fine).ask_many(TEXT, ["Who?", "Where?", "When?"], run_id="r1")
    assert [result.usage.calls for result in results] == [result.chunks + 1 for result in results]
    assert sum("TOTAL(" in sql for sql in queries) == 1


def test_what_was_paid_before_a_limit_or_a_failure_is_counted(store: RunStore) -> None:
    limited = agent(store, ["", "never sent"], limits=Limits(calls=1)).ask(
        TEXT, "Who?", run_id="r1"
    )
    assert (limited.stop_reason, limited.usage.retries) == (StopReason.LIMIT, 1)
    assert limited.usage.retry_tokens > 1000
    broken = agent(store, ["", ConnectionFailed("gone", attempts=5)])
    with pytest.raises(ConnectionFailed):
        broken.ask(TEXT, "Who?", run_id="r1")
    assert store.usage("r1").retries == 1 + 1 + 5
    assert [event.type for event in store.events("r1")].count("retried") == 2


@pytest.mark.parametrize("asked", [["Who?"], ["Who?", "Whose?", "Whom?"]])
def test_calls_that_were_interrupted_count_towards_a_limit(
    store: RunStore, asked: list[str]
) -> None:
    calls = list[ChatRequest]()

    def reply(request: ChatRequest) -> str:
        calls.append(request)
        if len(calls) <= 2 * len(asked):
            raise RuntimeError  # as a kill does, it leaves the call in flight
        return "ok."

    limits = Limits(calls=5)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            agent(store, reply, limits=limits, concurrency=1).ask_many(TEXT, asked, run_id="r1")
    # Of several, some only waited for their turn.
    assert store.spent("r1").repeated >= len(calls) >= 2
    results = agent(store, reply, limits=limits).ask_many(TEXT, asked, run_id="r1")
    assert {result.stop_reason for result in results} == {StopReason.LIMIT}
    assert len(calls) <= 5
    again = agent(store, reply, limits=limits).ask_many(TEXT, asked, run_id="r1")
    assert len(calls) <= 5
    assert {result.stop_reason for result in again} == {StopReason.LIMIT}


def test_retries_beneath_the_agent_are_events_and_usage(store: RunStore) -> None:
    def flaky(request: ChatRequest) -> Completion:
        failures = (Failure(error="ServerBusy: later", waited=0.5),)
        return Completion(text="ok.", usage=Usage(calls=1, retries=1), failures=failures)

    result = agent(store, flaky).ask(TEXT, "Who?")
    retried = [event for event in store.events(result.run_id) if event.type == "retried"]
    assert len(retried) == result.usage.retries == result.usage.calls
    assert (retried[0].reason, retried[0].waited) == ("ServerBusy: later", 0.5)


class Slow(ByteBound):
    """A counter that takes its time over memories, in the middle of a commit's thread."""

    def measure(self, text: str):
        time.sleep(0.3 if text == "update." else 0)
        return super().measure(text)


async def test_a_cancelled_commit_is_through_before_the_run_is_let_go(store: RunStore) -> None:
    slow = agent(store, fine, counter=Slow())
    task = asyncio.create_task(slow.aask(TEXT, "Who?", run_id="r1"))
    while not sent(slow):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    at_once = await asyncio.to_thread(lambda: list(store.events("r1")))
    await asyncio.sleep(0.5)
    assert await asyncio.to_thread(lambda: list(store.events("r1"))) == at_once
    result = await slow.aask(TEXT, "Who?", run_id="r1")
    assert result.usage.calls == result.chunks + 1
    types = [event.type for event in await asyncio.to_thread(lambda: list(store.events("r1")))]
    assert types.count("memory_updated") == types.count("chunk_read") == result.chunks


def test_done_on_the_last_chunk_settles_nothing_early(store: RunStore) -> None:
    result = agent(store, lambda r: "Facts.\n[done]", gate="exit").ask("Short text.", "Who?")
    assert (result.stop_reason, result.chunks) == (StopReason.ANSWERED, 1)


def test_a_finished_run_needs_no_document(store: RunStore, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    first = agent(store, fine).ask(path, "Who?", run_id="r1")
    path.unlink()
    assert repr(agent(store, []).resume("r1")) == repr(first)
    assert store.get("r1").status == "finished"


@pytest.mark.parametrize("asked", [["Who?"], ["Who?", "Whose?"]])
def test_a_run_whose_answer_alone_is_missing_needs_no_document(
    store: RunStore, tmp_path: Path, asked: list[str]
) -> None:
    def unanswered(request: ChatRequest) -> str:
        if request.kind == "answer" and "Who?" in request.parts["question"]:
            raise ConnectionFailed("gone")
        return fine(request)

    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    with pytest.raises(ConnectionFailed):
        agent(store, unanswered).ask_many(path, asked, run_id="r1")
    limited = agent(store, fine, limits=Limits(calls=1))
    limited.ask_many(path, asked, run_id="r2")
    path.unlink()
    results = agent(store, fine).resume("r1")
    assert {r.answer for r in results} if isinstance(results, list) else results.answer
    with pytest.raises(DocumentNotFound):
        limited.resume("r2")


def test_calls_that_wait_for_their_turn_are_checked_when_it_comes(store: RunStore) -> None:
    questions = [f"Who {number}?" for number in range(20)]
    limited = agent(store, fine, limits=Limits(tokens=1), concurrency=1)
    results = limited.ask_many(TEXT, questions)
    assert sum(result.usage.calls for result in results) == 1
    assert {result.stop_reason for result in results} == {StopReason.LIMIT}
