"""One model behind several servers, over real connections."""

import asyncio
import logging

import pytest
from tests.models.chat_server import (
    Behaviour,
    Script,
    counts,
    hang_up,
    running,
    say,
    send,
    slow,
)
from tests.models.routes import Clock, MakeRouter
from tests.models.test_openai import KEY, request

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ConnectionFailed,
    ModelNotFound,
    ServerFailed,
)
from memagent.messages import Completion
from memagent.models.dialects import DialectName
from memagent.models.openai import OpenAIModel


async def test_requests_go_round_a_dead_server(
    server: Script, second: Script, clock: Clock
) -> None:
    model = OpenAIModel("tiny", base_url=[server.url, second.url])
    server.die()
    with pytest.raises(ConnectionFailed, match=server.url):
        await model.complete(request("a"))
    texts = [(await model.complete(request(str(n)))).text for n in range(4)]
    assert texts == ["hello"] * 4
    assert len(second.bodies) == 4
    server.default, server.models = say("I am back"), send(404, {})
    clock.now += 1.5
    assert (await model.complete(request("a"))).text == "I am back"
    await model.aclose()


async def test_all_dead_is_the_error_of_one(server: Script, second: Script) -> None:
    model = OpenAIModel("tiny", base_url=[server.url, second.url])
    server.die()
    second.die()
    with pytest.raises(ConnectionFailed) as caught:
        await model.complete(request("a"))
    assert (server.url in str(caught.value)) != (second.url in str(caught.value))
    await model.aclose()


async def test_the_servers_share_the_load(server: Script, second: Script) -> None:
    for one in (server, second):
        one.default = slow(0.2)
    model = OpenAIModel("tiny", base_url=[server.url, second.url], window=100)
    await asyncio.gather(*(model.complete(request(str(n))) for n in range(8)))
    assert [len(one.bodies) for one in (server, second)] == [4, 4]
    assert repr([server.url, second.url]) in repr(model)
    await model.aclose()


async def test_the_window_is_the_least_of_those_that_answer(
    server: Script, second: Script, nobody: str
) -> None:
    server.be_vllm(window=100)
    second.be_vllm(window=80)
    model = OpenAIModel("tiny", base_url=[server.url, nobody, second.url])
    assert await model.window() == 80
    assert await model.only(model.servers[0]).window() == 100
    await model.aclose()


async def test_a_server_that_refuses_the_key_is_named_before_a_call_is_paid(
    server: Script, second: Script
) -> None:
    server.be_vllm(window=100)
    second.models = second.default = send(401, {"message": "no"})
    urls = [server.url, second.url]
    model = OpenAIModel("tiny", base_url=urls)
    with pytest.raises(AuthenticationFailed, match=second.url):
        await model.window()
    await model.aclose()
    model = OpenAIModel("tiny", base_url=urls, window=100)  # some guard only the list
    assert await model.window() == 100
    await model.aclose()


@pytest.mark.parametrize("dialect", ["plain", "vllm"])
@pytest.mark.parametrize(
    "answer",
    [
        send(200, b"<html>Maintenance</html>", Content_Type="text/html"),
        send(401, {"message": "no"}),
    ],
    ids=["maintenance page", "guarded"],
)
async def test_the_others_count_if_the_first_server_does_not(
    server: Script, second: Script, answer: Behaviour, dialect: DialectName
) -> None:
    second.be_vllm()
    server.be_vllm()
    server.models = server.others["/tokenize"] = answer
    model = OpenAIModel("tiny", base_url=[server.url, second.url], dialect=dialect)
    assert (await model.counter()).name.startswith("server:")
    await model.aclose()


@pytest.mark.parametrize("owner", ["sglang", "vllm"])
async def test_a_server_of_another_model_is_not_asked(
    server: Script, second: Script, owner: str
) -> None:
    server.serve_models({"id": "tiny", "owned_by": owner, "max_model_len": 2048})
    server.others, server.default = counts(), slow(0.5)  # so that the second one is chosen too
    second.serve_models({"id": "another", "owned_by": owner, "max_model_len": 2048})
    model = OpenAIModel("tiny", base_url=[server.url, second.url])
    said = await asyncio.gather(
        *(model.complete(request(str(n))) for n in range(4)), return_exceptions=True
    )
    assert {type(one) for one in said} == {Completion, ModelNotFound}
    assert server.bodies
    assert not second.bodies
    await model.aclose()


async def test_a_server_that_came_back_with_another_model_is_not_asked(server: Script) -> None:
    model = OpenAIModel("tiny", base_url=server.url)
    server.serve_models({"id": "tiny", "owned_by": "sglang", "max_model_len": 2048})
    server.others = alive = counts()
    await model.complete(request("a"))
    default = server.default
    server.die()
    with pytest.raises(ConnectionFailed):
        await model.complete(request("b"))
    server.default, server.others = default, alive
    server.serve_models({"id": "another", "owned_by": "sglang", "max_model_len": 2048})
    with pytest.raises(ModelNotFound, match="it serves 'another'"):
        await model.complete(request("c"))
    assert len(server.bodies) == 1
    server.serve_models({"id": "tiny", "owned_by": "sglang", "max_model_len": 2048})
    assert (await model.complete(request("d"))).text == "hello"
    await model.aclose()


async def test_a_maintenance_page_is_gone_round(server: Script, second: Script) -> None:
    server.default = send(200, b"<html>Maintenance</html>", Content_Type="text/html")
    model = OpenAIModel("tiny", base_url=[server.url, second.url], window=100)
    with pytest.raises(BadResponse, match=server.url):
        await model.complete(request("a"))
    assert [(await model.complete(request(str(n)))).text for n in range(3)] == ["hello"] * 3
    await model.aclose()


async def test_counts_come_from_whoever_is_there(
    server: Script, second: Script, make: MakeRouter, clock: Clock
) -> None:
    router = make([server.url, second.url])
    server.others = {"/tokenize": hang_up}
    second.others = counts()
    for _ in range(3):
        reply = await asyncio.to_thread(router.ask, "/tokenize", {"prompt": "a"})
        assert reply["count"] == 1
    assert (len(server.asked), len(second.asked)) == (1, 3)
    second.others = {"/tokenize": hang_up}
    with pytest.raises(ConnectionFailed):
        await asyncio.to_thread(router.ask, "/tokenize", {"prompt": "a"})


def test_several_event_loops_share_a_model() -> None:
    with running() as server, running() as second:
        for one in (server, second):
            one.be_vllm()
            one.default = slow(0.05)
        model = OpenAIModel("tiny", base_url=[server.url, second.url])

        async def ask(loop: int) -> list[str]:
            calls = (model.complete(request(f"{loop} {n}")) for n in range(6))
            return [reply.text for reply in await asyncio.gather(*calls)]

        async def everywhere() -> list[list[str]]:
            loops = (asyncio.to_thread(lambda n=n: asyncio.run(ask(n))) for n in range(4))
            return list(await asyncio.gather(*loops))

        assert asyncio.run(everywhere()) == [["hello"] * 6] * 4
        assert len(server.bodies) + len(second.bodies) == 24
        assert min(len(server.bodies), len(second.bodies)) >= 6
        assert server.listings + second.listings == 2
        asyncio.run(model.aclose())


async def test_no_secret_in_the_log_of_servers_that_went(
    server: Script, second: Script, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    urls = [one.url.replace("://", "://user:word-1%21@") for one in (server, second)]
    server.default = send(500, {"error": {"message": f"{KEY} word-1!"}})
    model = OpenAIModel("tiny", base_url=urls, default_headers={"X-Key": KEY})
    with pytest.raises(ServerFailed):
        await model.complete(request("a"))
    await model.complete(request("a"))
    await model.aclose()
    assert "left out for 1 s" in caplog.text
    for secret in (KEY, "word-1", "user:"):
        assert secret not in caplog.text + repr(model)
