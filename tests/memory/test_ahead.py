"""Read-ahead: several chunks sent at once, and the run of reading in order comes of it."""

import asyncio
import hashlib
import random
from collections.abc import Callable
from typing import Any

import pytest

from memagent import (
    ChatRequest,
    Completion,
    Limits,
    MemoryAgent,
    RunStore,
    Sampling,
    ScriptedModel,
    StopReason,
)
from memagent.errors import ConfigError, ModelError
from memagent.memory.ahead import SHARE, Pace

TEXT = "".join(f"Line {number} tells of the number {number * number}.\n" for number in range(300))
GREEDY = Sampling(temperature=0)


def keeping(rate: float) -> Callable[[ChatRequest], str]:
    """Changes the memory at this rate, and in a way that depends on all that was shown."""

    def reply(request: ChatRequest) -> str:
        shown = "".join(message.content for message in request.messages)
        digest = hashlib.sha256(shown.encode()).hexdigest()
        if request.kind == "update" and int(digest[:8], 16) / 16**8 >= rate:
            return "[keep]"
        return f"{request.kind} {digest[:12]}."

    return reply


def agent(store: RunStore, replies: Any, ahead: Any = 1, **settings: Any) -> MemoryAgent:
    model = replies if isinstance(replies, ScriptedModel) else ScriptedModel(replies, window=1600)
    settings = {"chunk_tokens": 300, "gate": "update", "sampling": GREEDY} | settings
    return MemoryAgent(model, store=store, read_ahead=ahead, **settings)


def log(store: RunStore, run_id: str) -> list[dict[str, Any]]:
    """The run's events, apart from what it cost."""
    events = [event.model_dump(mode="json") for event in store.events(run_id)]
    for event in events:
        event.pop("usage", None)
        event.pop("run_id", None)
    return events


@pytest.mark.parametrize("rate", [0.0, 0.05, 0.3, 1.0])
@pytest.mark.parametrize("ahead", [2, 3, 16, "auto"])
def test_a_run_is_that_of_reading_in_order(store: RunStore, ahead: Any, rate: float) -> None:
    replies = keeping(rate)
    inorder = agent(store, replies).ask(TEXT, "Which number?", run_id="inorder")
    result = agent(store, replies, ahead).ask(TEXT, "Which number?", run_id="ahead")
    assert result.chunks > 30
    assert (result.memory, result.answer) == (inorder.memory, inorder.answer)
    assert log(store, "ahead") == log(store, "inorder")
    assert list(store.conversations("ahead")) == list(store.conversations("inorder"))
    paid, usage = inorder.usage, result.usage
    assert (usage.calls, usage.prompt_tokens) == (paid.calls, paid.prompt_tokens)
    assert usage.retries == usage.repeated == 0
    assert (usage.discarded > 0) == (rate > 0)
    assert (usage.retry_tokens > 0) == (rate > 0)


def test_each_question_goes_its_own_pace(store: RunStore) -> None:
    questions = ["Which number?", "Which line?", "Whose?"]
    replies = keeping(0.2)
    inorder = agent(store, replies).ask_many(TEXT, questions, run_id="inorder")
    results = agent(store, replies, 5).ask_many(TEXT, questions, run_id="ahead")
    assert [r.memory for r in results] == [r.memory for r in inorder]
    assert [r.answer for r in results] == [r.answer for r in inorder]
    assert len({r.usage.discarded for r in results}) > 1
    for question in range(3):
        ours, theirs = (store.conversations(run, question) for run in ("ahead", "inorder"))
        assert list(ours) == list(theirs)


def test_every_call_sent_is_counted(store: RunStore) -> None:
    reader = agent(store, model := ScriptedModel(keeping(0.2), window=1600), 8)
    usage = reader.ask(TEXT, "Which number?").usage
    assert len(model.requests) == usage.calls + usage.discarded


def test_the_same_memory_written_out_is_no_change(store: RunStore) -> None:
    def reply(request: ChatRequest) -> str:
        return "An answer." if request.kind == "answer" else "The same memory each time."

    result = agent(store, reply, 8, gate="off").ask(TEXT, "Which number?")
    assert result.memory == "The same memory each time."
    assert result.usage.discarded == 7  # of the first round, whose first chunk wrote it


def test_a_question_that_is_settled_throws_the_rest_of_its_round_away(store: RunStore) -> None:
    def reply(request: ChatRequest) -> str:
        if request.kind == "answer":
            return "Enough."
        return "All of it. [done]" if "Line 40 " in request.parts["chunk"] else "[keep]"

    inorder = agent(store, reply, gate="both").ask(TEXT, "Which number?", run_id="inorder")
    result = agent(store, reply, 8, gate="both").ask(TEXT, "Which number?", run_id="ahead")
    assert log(store, "ahead") == log(store, "inorder")
    assert result.chunks == inorder.chunks


def test_it_is_faster_where_calls_take_time(store: RunStore) -> None:
    running = most = 0

    async def slow(request: ChatRequest) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return keeping(0.0)(request)

    agent(store, slow, 8).ask(TEXT, "Which number?")
    assert most == 8
    most = 0
    agent(store, slow, 8, concurrency=3).ask(TEXT, "Which number?")
    assert most == 3


@pytest.mark.parametrize("ahead", [3, "auto"])
def test_a_run_that_fails_anywhere_resumes_as_if_it_had_not(store: RunStore, ahead: Any) -> None:
    inorder = agent(store, keeping(0.3)).ask(TEXT, "Which number?", run_id="inorder")
    fails = random.Random(7)

    def failing(request: ChatRequest) -> str:
        if fails.random() < 0.08:
            raise ModelError("the server is gone")
        return keeping(0.3)(request)

    failures = 0
    while True:
        before = set(_committed(store))
        reader = agent(store, model := ScriptedModel(failing, window=1600), ahead)
        try:
            result = reader.ask(TEXT, "Which number?", run_id="ahead")
            break
        except ModelError:
            failures += 1
        finally:
            asked = {request.parts.get("chunk") for request in model.requests}
            assert not before & asked, "an accepted chunk was paid for twice"
    assert failures >= 3
    assert (result.memory, result.answer) == (inorder.memory, inorder.answer)
    assert list(store.conversations("ahead")) == list(store.conversations("inorder"))
    assert result.usage.calls == inorder.usage.calls


def _committed(store: RunStore) -> list[str]:
    """The chunks whose replies were taken."""
    taken = store.count("ahead", "update/q0")
    effects = (store.effect("ahead", f"chunk-{place}") for place in range(taken))
    return [effect["text"] for effect in effects if effect is not None]


def test_a_limit_stops_it_and_it_resumes(store: RunStore) -> None:
    inorder = agent(store, keeping(0.3)).ask(TEXT, "Which number?", run_id="inorder")
    limits = Limits(calls=20)
    model = ScriptedModel(keeping(0.3), window=1600)
    stopped = agent(store, model, 4, limits=limits).ask(TEXT, "Which number?", run_id="ahead")
    assert stopped.stop_reason is StopReason.LIMIT
    assert len(model.requests) == stopped.usage.calls + stopped.usage.discarded == 20
    again = agent(store, model, 4, limits=limits).ask(TEXT, "Which number?", run_id="ahead")
    assert again.stop_reason is StopReason.LIMIT
    assert len(model.requests) == 20  # what was thrown away counts after a resume too
    result = agent(store, keeping(0.3), 4).ask(TEXT, "Which number?", run_id="ahead")
    assert (result.memory, result.answer) == (inorder.memory, inorder.answer)


@pytest.mark.parametrize("place", [0, 2])
def test_a_reply_that_stays_unusable_is_paid_for_once(store: RunStore, place: int) -> None:
    """At its turn it ends the question; behind a change it is thrown away, and the chunk asked about again."""

    def reply(request: ChatRequest) -> str:
        if request.kind == "answer":
            return "An answer."
        number = request.parts["chunk"].split()[1]
        if number == first[1] and place:
            return "A note."
        return "" if number == first[place] else "[keep]"

    probe = agent(store, keeping(0)).ask(TEXT, "Which number?", run_id="probe")
    effects = [store.effect("probe", f"chunk-{chunk}") for chunk in range(probe.chunks)]
    first = [effect["text"].split()[1] for effect in effects if effect is not None]
    model = ScriptedModel(reply, window=1600)
    result = agent(store, model, 4).ask(TEXT, "Which number?", run_id="ahead")
    inorder = agent(store, reply).ask(TEXT, "Which number?", run_id="inorder")
    assert result.stop_reason is inorder.stop_reason is StopReason.UNUSABLE_REPLY
    assert result.chunks == inorder.chunks
    usage = result.usage
    assert len(model.requests) == usage.calls + usage.retries + usage.discarded


def test_a_doubted_reply_that_is_thrown_away_does_not_change_the_next_prompt(
    store: RunStore,
) -> None:
    """A reply that repeats itself is asked for again, warmer; with another memory it may be fine."""

    def reply(request: ChatRequest) -> str:
        chunk = request.parts.get("chunk", "")
        if "Line 8 " in chunk:
            return "The first note."
        if "Line 16 " in chunk and not request.parts["memory"]:
            return "Again and again. " * 20
        return "[keep]" if request.kind == "update" else "An answer."

    inorder = agent(store, reply).ask(TEXT, "Which number?", run_id="inorder")
    result = agent(store, reply, 8).ask(TEXT, "Which number?", run_id="ahead")
    assert result.memory == inorder.memory == "The first note."
    assert list(store.conversations("ahead")) == list(store.conversations("inorder"))


def test_an_estimate_bounds_what_is_sent(store: RunStore) -> None:
    reader = agent(store, keeping(1.0), 4)
    estimate = reader.estimate(TEXT, "Which number?")
    usage = reader.ask(TEXT, "Which number?").usage
    assert estimate.calls_min == usage.calls
    assert usage.calls + usage.discarded == estimate.calls_max
    assert usage.prompt_tokens + usage.retry_tokens <= (
        estimate.prompt_tokens + estimate.completion_tokens
    )


def test_an_estimate_bounds_what_is_sent_after_other_questions_are_settled(store: RunStore) -> None:
    changing = keeping(1.0)

    def reply(request: ChatRequest) -> str:
        settled = request.kind == "update" and request.parts["question"] != "q0"
        return "A note.\n[done]" if settled else changing(request)

    questions = [f"q{number}" for number in range(6)]
    reader = agent(store, model := ScriptedModel(reply, window=1600), 16, gate="exit")
    estimate = reader.estimate(TEXT, questions)
    reader.ask_many(TEXT, questions)
    assert estimate.calls_min < len(model.requests) <= estimate.calls_max


@pytest.mark.parametrize("ahead", [2, "auto"])
def test_a_temperature_is_refused(store: RunStore, ahead: Any) -> None:
    with pytest.raises(ConfigError, match=r"read_ahead=.* needs greedy decoding.*temperature=0"):
        agent(store, keeping(0), ahead, sampling=Sampling(temperature=0.2))


@pytest.mark.parametrize("ahead", [0, -1, 1.5, "all", True])
def test_what_is_no_number_of_chunks_is_refused(store: RunStore, ahead: Any) -> None:
    with pytest.raises(ConfigError, match="read_ahead"):
        agent(store, keeping(0), ahead)


def test_cancelling_leaves_nothing_running(store: RunStore) -> None:
    running = 0
    full = asyncio.Event()

    async def hang(request: ChatRequest) -> str:
        nonlocal running
        running += 1
        if running == 8:
            full.set()
        try:
            await asyncio.Event().wait()
        finally:
            running -= 1
        return "[keep]"

    async def main() -> None:
        reader = agent(store, hang, 8)
        task = asyncio.create_task(reader.aask(TEXT, "Which number?", run_id="ahead"))
        await asyncio.wait_for(full.wait(), 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert running == 0

    asyncio.run(main())
    assert agent(store, keeping(0), 8).ask(TEXT, "Which number?", run_id="ahead").memory == ""


def test_what_was_unusable_before_an_interruption_does_not_change_the_next_prompt(
    store: RunStore,
) -> None:
    """The chunks behind the first one are asked about again with its note: as if for the first time."""
    stuck = asyncio.Event()

    async def reply(request: ChatRequest) -> str:
        if "Line 0 " in request.parts.get("chunk", ""):
            await stuck.wait()
            return "A note."
        if request.kind == "update" and not request.parts["memory"]:
            return ""
        return "[keep]" if request.kind == "update" else "An answer."

    async def main() -> list[ChatRequest]:
        reader = agent(store, reply, 3)
        task = asyncio.create_task(reader.aask(TEXT[:1500], "Which number?", run_id="ahead"))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stuck.set()
        model = ScriptedModel(reply, window=1600)
        await agent(store, model, 3).aask(TEXT[:1500], "Which number?", run_id="ahead")
        return model.requests

    resumed = [each for each in asyncio.run(main()) if each.parts["memory"]]
    model = ScriptedModel(reply, window=1600)
    agent(store, model).ask(TEXT[:1500], "Which number?", run_id="inorder")
    assert resumed == [each for each in model.requests if each.parts["memory"]]


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.1, 0.3])
def test_auto_follows_the_rate_of_changes(rate: float) -> None:
    pace, draw = Pace("auto", 1000), random.Random(3)
    usual = sorted(play(pace, draw, rate, slots=1000, rounds=1500)[500:])[500]
    assert 0.6 * SHARE / rate <= usual <= 1.5 * SHARE / rate


def play(pace: Pace, draw: random.Random, rate: float, *, slots: int, rounds: int) -> list[int]:
    """The sizes of rounds at a server that answers as many calls a second as it has slots."""
    sizes: list[int] = []
    for _ in range(rounds):
        sizes.append(size := pace.size(1))
        first = next((n for n in range(size) if draw.random() < rate), size)
        seconds = [1 + place // slots + draw.uniform(-0.02, 0.02) for place in range(first)]
        pace.note(size, min(first + 1, size), int(first < size), seconds)
    return sizes


@pytest.mark.parametrize("rate", [0.01, 0.05])
@pytest.mark.parametrize("slots", [1, 4, 12])
def test_auto_follows_the_free_slots(rate: float, slots: int) -> None:
    """Other clients come and go."""
    pace, draw = Pace("auto", 16), random.Random(3)
    alone = play(pace, draw, rate, slots=16, rounds=300)[100:]
    assert sum(alone) / 200 > 10
    busy = play(pace, draw, rate, slots=slots, rounds=300)[100:]
    # It tries from time to time whether more slots are free.
    assert max(1, 0.7 * slots) <= sum(busy) / 200 <= 1.3 * slots + 1.5
    again = play(pace, draw, rate, slots=16, rounds=300)[200:]
    assert sum(again) / 100 > 10


def test_a_reply_that_never_comes_costs_its_prompt(store: RunStore) -> None:
    async def stuck(request: ChatRequest) -> Completion | str:
        if "Line 0 " in request.parts.get("chunk", ""):
            return "A note."
        if request.kind == "update" and not request.parts["memory"]:
            await asyncio.Event().wait()
        return "[keep]" if request.kind == "update" else "An answer."

    result = asyncio.run(agent(store, stuck, 3).aask(TEXT[:1500], "Which number?"))
    assert result.answer
    assert result.usage.discarded >= 1
    assert result.usage.retry_tokens >= 300 * result.usage.discarded / 2
