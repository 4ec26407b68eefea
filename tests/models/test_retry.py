import asyncio
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.models.chat_server import Script, hang_up, say, send, slow

from memagent import MemoryAgent
from memagent.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    LimitReached,
    ModelError,
    RequestTimeout,
    ServerBusy,
    ServerFailed,
)
from memagent.memory.plan import MemoryPlan, MemorySettings
from memagent.messages import ChatRequest, Completion, Failure, Message, Usage
from memagent.models.limit import ConcurrencyLimit
from memagent.models.openai import OpenAIModel
from memagent.models.retry import FAILURES_KEPT, LOST_WAIT, Retry, count_in_thread, patiently
from memagent.models.scripted import ScriptedModel
from memagent.prompts import PromptSet
from memagent.tokens.byte_bound import ByteBound

REQUEST = ChatRequest(messages=(Message(role="user", content="x"),), max_tokens=5)


def busy(retry_after: float | None = None) -> ServerBusy:
    return ServerBusy("try later", retry_after=retry_after)


def fast(replies: Any, **options: Any) -> tuple[ScriptedModel, Retry]:
    model = ScriptedModel(replies)
    return model, Retry(model, **{"max_wait": 0.001, **options})


class Clock:
    """Time that passes only in waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def pause(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    async def sleep(self, seconds: float) -> None:
        self.pause(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for name, value in (
        ("monotonic", lambda: clock.now),
        ("sleep", clock.sleep),
    ):
        monkeypatch.setattr(f"memagent.models.retry.{name}", value)
    return clock


def later(clock: Clock, *phases: tuple[float, Any]) -> Callable[[Any], Any]:
    """Each reply until its time in seconds, the last one for ever."""
    return lambda request: next((reply for end, reply in phases if clock.now < end), phases[-1][1])


async def test_success_is_passed_on_untouched() -> None:
    reply = Completion(text="a")
    _, retry = fast([reply])
    assert await retry.complete(REQUEST) is reply


async def test_failures_are_listed_in_the_reply() -> None:
    reply = Completion(
        text="a", usage=Usage(calls=1, retries=2), failures=(Failure(error="e", waited=0),)
    )
    model, retry = fast([busy(), ConnectionFailed("gone"), reply])
    got = await retry.complete(REQUEST)
    assert got.text == "a"
    assert [failure.error for failure in got.failures] == [
        "ServerBusy: try later",
        "ConnectionFailed: gone",
        "e",
    ]
    assert got.usage.retries == 4
    assert all(failure.waited <= 0.001 for failure in got.failures)
    assert len(model.requests) == 3


async def test_the_last_error_keeps_its_type_and_says_what_was_tried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cause = OSError("socket")
    last = busy(retry_after=0.0005)
    last.__cause__ = cause
    model, retry = fast([busy(), busy(), last], attempts=3)
    with pytest.raises(
        ServerBusy, match=r"try later \(gave up after 3 attempts over 0\.\d s\)"
    ) as caught:
        await retry.complete(REQUEST)
    assert caught.value.attempts == 3
    assert caught.value.retry_after == 0.0005
    assert caught.value.__cause__ is cause
    assert len(model.requests) == 3
    assert ["attempt" in record.message for record in caplog.records] == [True, True]


async def test_errors_that_do_not_pass_are_raised_at_once() -> None:
    refusal = AuthenticationFailed("no")
    model, retry = fast([refusal, "never"])
    with pytest.raises(AuthenticationFailed) as caught:
        await retry.complete(REQUEST)
    assert caught.value is refusal
    assert caught.value.attempts == 1
    assert len(model.requests) == 1


async def test_a_lasting_error_after_a_passing_one_counts_both() -> None:
    _, retry = fast([busy(), AuthenticationFailed("no")])
    with pytest.raises(AuthenticationFailed, match="after 2 attempts") as caught:
        await retry.complete(REQUEST)
    assert caught.value.attempts == 2


class QuotaUsedUp(ServerBusy):
    """An error of somebody else's model, with arguments of its own."""

    def __init__(self, *, account: str, share: float) -> None:
        super().__init__(f"{account} is at {share:.0%}", retry_after=0.0)
        self.account = account


async def test_an_error_with_arguments_of_its_own_stays_what_it_is() -> None:
    errors = [QuotaUsedUp(account="lab", share=1.0) for _ in range(2)]
    _, retry = fast(errors, attempts=2)
    with pytest.raises(QuotaUsedUp, match=r"^lab is at 100% \(gave up after 2 attempts") as caught:
        await retry.complete(REQUEST)
    assert caught.value not in errors
    assert (caught.value.account, caught.value.attempts) == ("lab", 2)
    assert errors[1].attempts == 1


async def test_other_exceptions_are_not_touched() -> None:
    for error in (
        ValueError("bug"),
        LimitReached("calls=1"),
        TimeoutError("the model's own"),
        asyncio.CancelledError(),
    ):
        model, retry = fast([error, "never"], deadline=20)
        with pytest.raises(type(error)) as caught:
            await retry.complete(REQUEST)
        assert type(caught.value) is type(error)
        assert str(caught.value) == str(error)
        assert len(model.requests) == 1


async def test_waits_at_least_what_the_server_asks_and_at_most_max_wait() -> None:
    _, retry = fast([busy(0.7), busy(), "a"], max_wait=0.02)
    reply = await retry.complete(REQUEST)
    assert reply.failures[0].waited == 0.02
    _, retry = fast([busy(0.9), "a"], max_wait=60)
    start = time.monotonic()
    assert (await retry.complete(REQUEST)).failures[0].waited == 0.9
    assert time.monotonic() - start >= 0.9


async def test_waits_grow_with_jitter(clock: Clock) -> None:
    _, retry = fast([busy()] * 9 + ["a"], attempts=10, max_wait=60)
    waits = [failure.waited for failure in (await retry.complete(REQUEST)).failures]
    for k, waited in enumerate(waits):
        longest = min(0.5 * 2**k, 60)
        assert longest / 2 <= waited <= longest
    assert len(set(waits)) == 9
    assert clock.waits == waits


async def test_no_attempt_starts_after_the_deadline() -> None:
    model, retry = fast([busy(5.0), "late"], max_wait=60, deadline=1)
    start = time.monotonic()
    with pytest.raises(ServerBusy) as caught:
        await retry.complete(REQUEST)
    assert time.monotonic() - start < 1, "it does not even wait"
    assert caught.value.attempts == 1
    assert len(model.requests) == 1


async def test_the_deadline_cuts_off_an_attempt_and_frees_its_connection(server: Script) -> None:
    server.replies += [say(), slow(20)]
    model = OpenAIModel("tiny", base_url=server.url)
    await model.complete(REQUEST)  # what the first call loads takes time
    retry = Retry(model, deadline=0.5)
    with pytest.raises(
        RequestTimeout, match=r"openai:tiny: .* deadline of 0\.5 s; .*deadline="
    ) as caught:
        await retry.complete(REQUEST)
    assert caught.value.attempts == 1
    assert await asyncio.to_thread(server.left.wait, 5)
    assert len(server.bodies) == 2
    await retry.aclose()


async def test_an_attempt_cut_off_after_others_leaves_the_last_error() -> None:
    async def hangs_then(request: ChatRequest) -> str:
        if len(model.requests) < 3:
            raise ServerFailed(f"crash {len(model.requests)}")
        await asyncio.sleep(20)
        return "late"

    model, retry = fast(hangs_then, deadline=0.5)
    with pytest.raises(ServerFailed, match=r"^crash 2 \(gave up after 3 attempts over ") as caught:
        await retry.complete(REQUEST)
    assert caught.value.attempts == 3


async def test_the_deadline_holds_for_counter_and_window_and_not_for_all_calls_together() -> None:
    class Slow(ScriptedModel):
        async def window(self) -> int | None:
            await asyncio.sleep(20)
            return 1

    retry = Retry(Slow(lambda request: asyncio.sleep(0.2, "a")), deadline=0.7)
    for _ in range(4):
        assert (await retry.complete(REQUEST)).text == "a"
    with pytest.raises(RequestTimeout, match="deadline"):
        await retry.window()


@pytest.mark.parametrize("deadline", [None, 20])
async def test_cancelling_while_it_waits(deadline: float | None) -> None:
    model, retry = fast([busy(), "never"], max_wait=60, deadline=deadline)
    call = asyncio.create_task(retry.complete(REQUEST))
    await asyncio.sleep(0.02)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(model.requests) == 1


async def test_cancelling_an_attempt_that_has_a_deadline() -> None:
    model, retry = fast(lambda request: asyncio.sleep(20, "never"), deadline=20)
    call = asyncio.create_task(retry.complete(REQUEST))
    await asyncio.sleep(0.02)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(model.requests) == 1


@pytest.mark.parametrize("error", [ConnectionFailed("gone"), busy()])
async def test_a_server_that_has_answered_is_waited_for_while_patience_lasts(
    error: ModelError, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    model, retry = fast(later(clock, (1, "a"), (9999, error)), max_wait=60)
    await retry.complete(REQUEST)
    clock.now = 100.0
    gave_up = r"gave up after \d{2,3} attempts over (59\d|600)\.\d s"
    with pytest.raises(type(error), match=gave_up) as caught:
        await retry.complete(REQUEST)
    assert 590 <= clock.now - 100 <= 600
    assert caught.value.attempts == len(model.requests) - 1 == len(clock.waits) + 1
    assert all(LOST_WAIT / 2 <= waited <= LOST_WAIT for waited in clock.waits[5:])
    assert len(caplog.records) == len(clock.waits)
    third = caplog.records[2].message
    assert "attempt 3 (waiting up to 600 s for the server) failed" in third
    assert third.endswith("s: same error")
    assert str(error).partition("; ")[0] in caplog.records[0].message


async def test_a_server_that_comes_back_answers_with_few_of_its_many_failures(clock: Clock) -> None:
    _, retry = fast(
        later(clock, (1, "a"), (300, ConnectionFailed("gone")), (9999, "b")), max_wait=60
    )
    await retry.complete(REQUEST)
    clock.now = 2.0
    reply = await retry.complete(REQUEST)
    assert (reply.text, len(reply.failures)) == ("b", FAILURES_KEPT)
    assert reply.usage.retries == len(clock.waits) > FAILURES_KEPT + 10
    assert sum(failure.waited for failure in reply.failures) == pytest.approx(clock.now - 2)
    first, *_, last = (failure.error for failure in reply.failures)
    assert first == "ConnectionFailed: gone"
    assert last == f"ConnectionFailed: gone (and {len(clock.waits) - FAILURES_KEPT} before it)"


@pytest.mark.parametrize("error", [ConnectionFailed("nobody there"), busy()])
async def test_a_server_that_never_answered_fails_after_its_attempts(
    error: ModelError, clock: Clock
) -> None:
    model, retry = fast(lambda request: error, max_wait=60)
    assert await retry.window() == 8192, "known without the server, so it proves nothing"
    assert (await retry.counter()).count("a") == 1
    with pytest.raises(type(error), match="after 5 attempts"):
        await retry.complete(REQUEST)
    assert len(model.requests) == 5
    assert clock.now <= 0.5 + 1 + 2 + 4


async def test_a_lost_server_uses_up_no_attempts_and_each_outage_is_waited_for_anew(
    clock: Clock,
) -> None:
    gone = ConnectionFailed("gone")
    crashes: list[Any] = [ServerFailed("crash") for _ in range(4)]
    crashed: list[int] = []

    def reply(request: ChatRequest) -> Any:
        if clock.now == 0:
            return "a"
        if clock.now < 500 or (len(crashes) < 4 and clock.now < 1000):
            return gone
        crashed.append(len(clock.waits))
        return crashes.pop() if crashes else "b"

    _, retry = fast(reply, max_wait=60)
    await retry.complete(REQUEST)
    clock.now = 1.0
    assert (await retry.complete(REQUEST)).text == "b"
    assert clock.now >= 1000
    first = crashed[0]
    assert all(waited <= 0.5 for waited in clock.waits[first : first + 2]), "they grow anew as well"
    assert not crashes


@pytest.mark.parametrize("kind", [RequestTimeout, ServerFailed])
async def test_a_server_that_is_there_but_fails_has_its_attempts_only(
    kind: type[ModelError], clock: Clock
) -> None:
    _, retry = fast(["a", *[kind("no")] * 5, "never"], max_wait=60)
    await retry.complete(REQUEST)
    with pytest.raises(kind, match="after 5 attempts"):
        await retry.complete(REQUEST)


async def test_a_busy_server_may_ask_for_more_than_the_wait_for_a_lost_one(clock: Clock) -> None:
    _, retry = fast(["a", *[busy(30.0)] * 7, *[busy(300.0)] * 2, "b"], max_wait=60)
    await retry.complete(REQUEST)
    assert (await retry.complete(REQUEST)).text == "b"
    assert clock.waits == [30.0] * 7 + [60.0] * 2


@pytest.mark.parametrize(("patience", "deadline", "seconds"), [(0, None, 7.5), (600, 40, 40)])
async def test_impatience(
    patience: float, deadline: float | None, seconds: float, clock: Clock
) -> None:
    model, retry = fast(
        lambda request: ConnectionFailed("gone") if len(model.requests) > 1 else "a",
        max_wait=60,
        patience=patience,
        deadline=deadline,
    )
    await retry.complete(REQUEST)
    with pytest.raises(ConnectionFailed) as caught:
        await retry.complete(REQUEST)
    assert seconds - LOST_WAIT <= clock.now <= seconds
    assert caught.value.attempts == 5 if deadline is None else caught.value.attempts > 5


async def test_what_counts_at_a_server_waits_for_it(clock: Clock) -> None:
    replies: list[Any] = [busy(), ConnectionFailed("gone"), busy(3.0), "a"]

    async def call() -> str:
        reply = replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    assert await patiently(call, name="counts") == "a"
    first, second = clock.waits  # the first failure is followed by an attempt at once
    assert 0.25 <= first <= 0.5
    assert second == 3.0
    for error in (ValueError("bug"), AuthenticationFailed("no")):
        replies[:] = [error, "never"]
        with pytest.raises(type(error)) as caught:
            await patiently(call, name="counts")
        assert caught.value is error


async def test_what_counts_at_a_server_has_the_patience_of_its_model(clock: Clock) -> None:
    tries: list[int] = []

    def count() -> int:
        tries.append(1)
        raise ConnectionFailed("gone")

    model = ConcurrencyLimit(Retry(ScriptedModel([]), attempts=3, patience=0), 2)
    plan = MemoryPlan.make(
        ("Why?",),
        MemorySettings(),
        PromptSet.load("plain"),
        model=model,
        counter=ByteBound(),
        window=8192,
    )
    for counting in (partial(count_in_thread, model), plan.counting):
        tries.clear()
        with pytest.raises(ConnectionFailed):
            await counting(count)
        assert len(tries) == 1 + 3


async def test_what_counts_at_a_server_gives_up_with_the_last_error(clock: Clock) -> None:
    cause = OSError("socket")

    async def call() -> str:
        raise ConnectionFailed("gone") from cause

    with pytest.raises(ConnectionFailed, match=r"^gone \(gave up after \d+ attempts") as caught:
        await patiently(call, name="counts")
    assert caught.value.attempts > 60
    assert caught.value.__cause__ is cause
    assert 590 <= clock.now <= 600


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"attempts": "3"},
        {"attempts": float("nan")},
        {"max_wait": -1},
        {"max_wait": "1"},
        {"deadline": -1},
        {"deadline": 0},
        {"deadline": "9"},
        {"patience": -1},
        {"patience": None},
    ],
)
def test_impossible_settings(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        fast(["a"], **options)


async def test_over_a_real_server(server: Script) -> None:
    server.replies += [
        send(429, {"error": {"message": "slow"}}, Retry_After="0.01"),
        send(503, {"message": "full"}),
        hang_up,
        send(200, b"<html>"),
        say("at last"),
    ]
    server.models = send(502, {})
    retry = Retry(OpenAIModel("tiny", base_url=server.url), max_wait=0.01)
    reply = await retry.complete(REQUEST)
    assert reply.text == "at last"
    assert [failure.error.split(":")[0] for failure in reply.failures] == [
        "ServerBusy",
        "ServerBusy",
        "ConnectionFailed",
        "BadResponse",
    ]
    listings = server.listings
    with pytest.raises(ModelError) as caught:
        await retry.window()
    assert caught.value.attempts == 5
    assert server.listings == listings + 5
    await retry.aclose()


def test_half_an_emoji_in_an_error_does_not_end_a_run(caplog: pytest.LogCaptureFixture) -> None:
    """Its event could not be stored, so the reply behind it would be lost."""
    _, retry = fast([ServerFailed("cut \ud83d"), "A memory.", "Pierre."])
    with MemoryAgent(retry, window=2048, store=None) as agent:
        result = agent.ask("Natasha marries Pierre.", "Whom does Natasha marry?")
        events = list(agent.store.events(result.run_id))
    assert result.answer == "Pierre."
    assert [e.reason for e in events if e.type == "retried"] == ["ServerFailed: cut \ufffd"]
    assert caplog.messages[0].endswith("cut \ufffd")
