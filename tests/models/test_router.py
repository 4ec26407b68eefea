"""Several servers of one model: who gets what, and what happens when one is away."""

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.models.chat_server import Script, send, slow
from tests.models.routes import URLS, Clock, MakeRouter

from memagent.errors import (
    BadResponse,
    ConnectionFailed,
    ContextOverflow,
    ModelError,
    RequestRefused,
    RequestTimeout,
    ServerBusy,
    ServerFailed,
)
from memagent.messages import Message, ToolCall
from memagent.models import router as routing
from memagent.models.router import BLOCK, LEAD, Router


def talk(*contents: str) -> tuple[Message, ...]:
    roles: Any = ["user", "assistant"] * len(contents)
    return tuple(Message(role=r, content=c) for r, c in zip(roles, contents, strict=False))


async def place(router: Router, messages: tuple[Message, ...] = (), tokens: int = 1) -> int:
    """Which server a request that ends at once goes to."""
    async with router.turn(messages, tokens) as server:
        return router.servers.index(server)


async def fails(router: Router, error: ModelError) -> int:
    """Which server a request goes to that fails there."""
    went: list[int] = []

    async def call() -> None:
        async with router.turn((), 1) as server:
            went.append(router.servers.index(server))
            raise error

    with pytest.raises(type(error)):
        await call()
    return went[0]


async def test_the_least_outstanding_tokens_decide(make: MakeRouter) -> None:
    router = make()
    async with AsyncExitStack() as stack:
        taken: list[int] = []
        for tokens in (100, 30, 50, 30, 45, 1):
            server = await stack.enter_async_context(router.turn((), tokens))
            taken.append(router.servers.index(server))
        # 100 | 30 | 50, then 30 more to the second, 45 more to the third, 1 to the second.
        assert taken == [0, 1, 2, 1, 2, 1]
    assert [lane.outstanding for lane in router.servers] == [0, 0, 0]


@pytest.mark.parametrize("how", [RequestRefused("x"), ServerFailed("x"), KeyError("x")], ids=repr)
async def test_what_failed_is_no_longer_outstanding(make: MakeRouter, how: Exception) -> None:
    router = make()

    async def call() -> None:
        async with router.turn((), 10):
            assert router.servers[0].outstanding == 10
            raise how

    with pytest.raises(type(how)):
        await call()
    assert router.servers[0].outstanding == 0


async def test_a_cancelled_request_is_no_longer_outstanding(make: MakeRouter) -> None:
    router = make()
    entered = asyncio.Event()

    async def hold() -> None:
        async with router.turn((), 10):
            entered.set()
            await asyncio.sleep(60)

    holding = asyncio.create_task(hold())
    await entered.wait()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    assert router.servers[0].outstanding == 0
    assert await place(router) == 0


async def test_a_continuation_follows_its_prefix(make: MakeRouter) -> None:
    router = make()
    first, other = talk("a" * BLOCK * 4), talk("b" * BLOCK * 4)
    async with router.turn((), 5):  # the first server is at something
        assert await place(router, first) == 1
        async with router.turn(other, 3):
            assert await place(router) == 2
    longer = talk("a" * BLOCK * 4, "reply", "and " * BLOCK)[:2]
    assert await place(router, longer) == 1
    assert await place(router, talk("a" * BLOCK * 2 + "c" * BLOCK * 2)) == 1, "half is enough"
    assert await place(router, (*longer, *talk("b" * BLOCK * 9))) == 0, "most of it is new"
    assert await place(router, talk("a" * (BLOCK - 1))) == 0, "too short to be known"


async def test_it_does_not_follow_onto_a_much_busier_server(make: MakeRouter) -> None:
    router = make()
    prompt = talk("a" * BLOCK * 4)
    assert await place(router, prompt) == 0
    async with router.turn((), LEAD * 10):  # at the first
        assert await place(router, prompt, 10) == 0
        assert await place(router, prompt, 9) == 1
        assert await place(router, prompt, 10) == 1, "it was at the second last"


async def test_half_a_surrogate_pair_is_no_obstacle(make: MakeRouter) -> None:
    assert await place(make(), talk("\ud800" * BLOCK)) == 0


async def test_the_memory_of_prompts_is_bounded(
    make: MakeRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "KNOWN_BLOCKS", 3)
    router = make()
    first = talk("a" * BLOCK)
    async with router.turn((), 1):  # the first server is at something
        assert await place(router, first) == 1
        async with router.turn((), 1):  # and the second
            assert await place(router, first) == 1, "it is remembered"
            for n in range(9):
                await place(router, talk(f"{n:03}" * BLOCK))
            assert await place(router, first) == 2, "it was forgotten"


# --- servers that are away


@pytest.mark.parametrize(
    "error",
    [
        ConnectionFailed("x"),
        RequestTimeout("x"),
        ServerFailed("x"),
        ServerBusy("x"),
        BadResponse("x"),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_a_failed_server_is_left_out(
    make: MakeRouter, clock: Clock, caplog: pytest.LogCaptureFixture, error: ModelError
) -> None:
    router = make()
    prompt = talk("a" * BLOCK)
    assert await place(router, prompt) == 0
    assert await fails(router, error) == 0
    for _ in range(3):
        assert await place(router) == 1
    assert await place(router, prompt) == 1, "its prefixes do not count either"
    assert "http://localhost:1/v1: left out for 1 s: x" in caplog.text


@pytest.mark.parametrize("error", [RequestRefused("x"), ContextOverflow("x")], ids=repr)
async def test_a_refused_request_says_nothing_of_the_server(
    make: MakeRouter, error: ModelError
) -> None:
    router = make()
    for _ in range(3):
        assert await fails(router, error) == 0


async def test_it_rests_as_long_as_it_asks_for(
    server: Script, second: Script, make: MakeRouter, clock: Clock
) -> None:
    router = make([server.url, second.url])
    await fails(router, ServerBusy("x", retry_after=7.0))
    clock.now += 6.9
    assert await place(router) == 1
    clock.now += 0.2
    assert await place(router) == 0
    assert (server.listings, second.listings) == (1, 0)


async def test_many_failures_at_once_count_as_one(
    make: MakeRouter, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    router = make(URLS[:2])
    gone = asyncio.Event()

    async def call() -> None:
        async with router.turn((), 1):
            await gone.wait()
            raise ConnectionFailed("x")

    calls = [asyncio.create_task(call()) for _ in range(64)]
    await asyncio.sleep(0.05)
    assert [lane.outstanding for lane in router.servers] == [32, 32]
    gone.set()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(error, ConnectionFailed) for error in ended)
    assert [lane.failures for lane in router.servers] == [1, 1]
    assert [lane.rests_until for lane in router.servers] == [clock.now + 1.0] * 2
    assert len(caplog.records) == 2


async def test_a_server_that_stays_away_is_asked_less_and_less_often(
    server: Script, second: Script, make: MakeRouter, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    router = make([server.url, second.url])
    server.die()
    start, asked = clock.now, []
    await fails(router, ConnectionFailed("x"))
    for _ in range(1500):
        clock.now += 0.1
        before = server.listings
        assert await place(router) == 1
        if server.listings > before:
            asked.append(round(clock.now - start))
    assert asked == [1, 3, 7, 15, 31, 61, 91, 121]
    server.models = send(404, {"detail": "Not Found"})  # it keeps no list, but it is there
    clock.now += 30
    assert await place(router) == 0
    assert f"{server.url}: is back" in caplog.text
    assert router.servers[0].failures == 0


@pytest.mark.parametrize(
    ("said", "back"),
    [(send(401, {"error": "Unauthorized"}), True), (send(200, b"<html>"), True),
     (send(503, {"message": "loading"}), False), (send(502, b""), False)],
    ids=["401", "html", "503", "502"],
)  # fmt: skip
async def test_who_refuses_its_list_is_there(
    server: Script, second: Script, make: MakeRouter, clock: Clock, said: Any, back: bool
) -> None:
    router = make([server.url, second.url])
    await fails(router, ConnectionFailed("x"))
    server.models = said
    clock.now += 1.5
    assert await place(router) == (0 if back else 1)


async def test_a_server_that_is_back_is_asked_for_its_window_anew(
    server: Script, second: Script, make: MakeRouter, clock: Clock
) -> None:
    server.be_vllm(window=100)
    router = make([server.url, second.url])
    assert await router.servers[0].window() == 100
    server.be_vllm(window=50)
    await fails(router, ConnectionFailed("x"))
    clock.now += 1.5
    assert await place(router) == 0
    assert await router.servers[0].window() == 50


async def test_a_hung_server_delays_one_request_a_little(
    server: Script, second: Script, make: MakeRouter, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "ANSWERS_WITHIN", 0.3)
    router = make([server.url, second.url])
    server.models = slow(20)
    await fails(router, ConnectionFailed("x"))
    clock.now += 1.5

    async def timed() -> float:
        start = time.perf_counter()
        assert await place(router) == 1
        return time.perf_counter() - start

    took = sorted(await asyncio.gather(*(timed() for _ in range(8))))
    assert 0.3 <= took[-1] < 2.0
    assert took[-2] < 0.3, "the others do not wait for it"
    assert server.listings == 1


async def test_one_server_alone_is_never_left_out(
    server: Script, make: MakeRouter, caplog: pytest.LogCaptureFixture
) -> None:
    router = make([server.url])
    for _ in range(5):
        assert await fails(router, ConnectionFailed("x")) == 0
    assert server.listings == 0
    assert caplog.records == []


async def test_all_away_is_the_callers_to_wait_out(make: MakeRouter, clock: Clock) -> None:
    router = make(URLS[:2])
    assert await fails(router, ServerBusy("x", retry_after=9.0)) == 0
    assert await fails(router, ServerBusy("x", retry_after=5.0)) == 1
    assert await place(router) == 1, "it has to rest less"


async def test_a_list_that_answers_does_not_clear_a_server_whose_chat_fails(
    server: Script, second: Script, make: MakeRouter, clock: Clock
) -> None:
    """A dead engine behind a live API: it rests longer each time, until it has answered a request."""
    server.be_vllm()
    router = make([server.url, second.url])
    for rest in (1.0, 2.0, 4.0):
        assert await fails(router, ConnectionFailed("x")) == 0
        clock.now += rest - 0.1
        assert await place(router) == 1, "it rests still"
        clock.now += 0.2
    assert await place(router) == 0
    await fails(router, ConnectionFailed("x"))
    clock.now += 1.1
    assert await place(router) == 0, "it had answered: the first rest again"


async def test_calls_are_part_of_a_prompts_beginning(make: MakeRouter) -> None:
    def called(arguments: str) -> tuple[Message]:
        call = ToolCall(id="a", name="look", arguments=arguments)
        return (Message(role="assistant", content="", tool_calls=(call,)),)

    router = make()
    async with router.turn((), 1):  # the first server is at something
        assert await place(router, called("x" * 2 * BLOCK)) == 1
        async with router.turn((), 1):
            assert await place(router, called("x" * 2 * BLOCK)) == 1
            assert await place(router, called("y" * 2 * BLOCK)) == 2
