import asyncio
import time
from typing import Any

import pytest
from tests.models.chat_server import Script, hang_up, say, send

from memagent.errors import (
    AuthenticationFailed,
    ConfigError,
    ConnectionFailed,
    ModelError,
    ServerBusy,
)
from memagent.messages import ChatRequest, Completion, Failure, Message, Usage
from memagent.models.openai import OpenAIModel
from memagent.models.retry import Retry
from memagent.models.scripted import ScriptedModel

REQUEST = ChatRequest(messages=(Message(role="user", content="x"),), max_tokens=5)


def busy(retry_after: float | None = None) -> ServerBusy:
    return ServerBusy("try later", retry_after=retry_after)


def fast(replies: Any, **options: Any) -> tuple[ScriptedModel, Retry]:
    model = ScriptedModel(replies)
    return model, Retry(model, **{"max_wait": 0.001, **options})


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
    for error in (ValueError("bug"), asyncio.CancelledError()):
        model, retry = fast([error, "never"])
        with pytest.raises(type(error)):
            await retry.complete(REQUEST)
        assert len(model.requests) == 1


async def test_waits_at_least_what_the_server_asks_and_at_most_max_wait() -> None:
    _, retry = fast([busy(0.7), busy(), "a"], max_wait=0.02)
    reply = await retry.complete(REQUEST)
    assert reply.failures[0].waited == 0.02
    _, retry = fast([busy(0.9), "a"], max_wait=60)
    start = time.monotonic()
    assert (await retry.complete(REQUEST)).failures[0].waited == 0.9
    assert time.monotonic() - start >= 0.9


async def test_waits_grow_with_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_sleep(seconds: float) -> None: ...

    monkeypatch.setattr("memagent.models.retry.sleep", no_sleep)
    _, retry = fast([busy()] * 9 + ["a"], attempts=10, max_wait=60)
    waits = [failure.waited for failure in (await retry.complete(REQUEST)).failures]
    for k, waited in enumerate(waits):
        longest = min(0.5 * 2**k, 60)
        assert longest / 2 <= waited <= longest
    assert len(set(waits)) == 9


async def test_no_attempt_starts_after_the_deadline() -> None:
    model, retry = fast([busy(5.0), "late"], max_wait=60, deadline=1)
    start = time.monotonic()
    with pytest.raises(ServerBusy) as caught:
        await retry.complete(REQUEST)
    assert time.monotonic() - start < 1, "it does not even wait"
    assert caught.value.attempts == 1
    assert len(model.requests) == 1


async def test_cancelling_while_it_waits() -> None:
    model, retry = fast([busy(), "never"], max_wait=60)
    call = asyncio.create_task(retry.complete(REQUEST))
    await asyncio.sleep(0.02)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert len(model.requests) == 1


@pytest.mark.parametrize("options", [{"attempts": 0}, {"max_wait": -1}, {"deadline": -1}])
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
    server.models = send(500, {})
    retry = Retry(OpenAIModel("tiny", base_url=server.url), max_wait=0.01)
    reply = await retry.complete(REQUEST)
    assert reply.text == "at last"
    assert [failure.error.split(":")[0] for failure in reply.failures] == [
        "ServerBusy",
        "ServerBusy",
        "ConnectionFailed",
        "BadResponse",
    ]
    with pytest.raises(ModelError) as caught:
        await retry.window()
    assert caught.value.attempts == 5
    assert server.listings == 5
    await retry.aclose()
