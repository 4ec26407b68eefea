"""One server: what it says of itself, and what it is asked beside the chat."""

import asyncio
import gzip
import logging
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.models.chat_server import Script, hang_up, send, slow, trickle
from tests.models.test_openai import KEY, complete, request

from memagent.errors import (
    AuthenticationFailed,
    BadResponse,
    ConnectionFailed,
    ModelError,
    ModelNotFound,
    RequestTimeout,
    ServerBusy,
    ServerFailed,
)
from memagent.models.dialects import DIALECTS
from memagent.models.openai import OpenAIModel
from memagent.models.openai_client import Clients
from memagent.models.server import Server

Make = Callable[..., Server]


BOMB = gzip.compress(b" " * 100_000)


async def test_a_reply_without_end_is_not_read_to_its_end(
    server: Script, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 KB on the wire may unpack to 100 MB."""
    monkeypatch.setattr("memagent.models.openai_client.BODY_BYTES", 50_000)
    bomb = send(200, BOMB, Content_Encoding="gzip")
    server.models = server.default = bomb
    server.others = {"/tokenize": bomb}
    one = make()
    model = OpenAIModel("tiny", base_url=server.url)
    for asked in (
        one.listing(),
        asyncio.to_thread(one.ask, "/tokenize", {}),
        model.complete(request()),
    ):
        with pytest.raises(BadResponse, match=r"the reply has more than 50,000 bytes") as caught:
            await asked
        assert not caught.value.retryable
    await model.aclose()


@pytest.fixture
async def make(server: Script) -> AsyncIterator[Make]:
    made: list[Server] = []

    def make(url: str | None = None, *, dialect: Any = "plain", timeout: float = 60.0) -> Server:
        clients = Clients("plain:tiny", url or server.url, None, {"X-Key": KEY}, timeout)
        made.append(Server("tiny", clients, DIALECTS[dialect]))
        return made[-1]

    yield make
    for one in made:
        await one.aclose()


@pytest.mark.parametrize(
    ("owners", "presumed", "dialect"),
    [
        (["vllm"], "plain", "vllm"),
        (["sglang"], "vllm", "sglang"),
        (["vllm", "vllm"], "plain", "vllm"),
        (["vllm", "me"], "plain", "vllm"),
        (["vllm", "sglang"], "openai", "openai"),
        (["llamacpp"], "plain", "llamacpp"),
        (["library"], "plain", "plain"),
        (["openai-internal"], "vllm", "vllm"),
        (["openai"], "plain", "plain"),
        (["VLLM"], "plain", "plain"),
        ([""], "plain", "plain"),
        ([None], "sglang", "sglang"),
        ([], "vllm", "vllm"),
    ],
    ids=str,
)
async def test_a_server_gives_its_dialect_away_in_its_list(
    server: Script, make: Make, owners: list[str | None], presumed: str, dialect: str
) -> None:
    server.serve_models(
        *({"id": f"tiny{n or ''}", "owned_by": who} for n, who in enumerate(owners))
    )
    one = make(dialect=presumed)
    assert (await one.dialect()).name == dialect
    await one.window()
    assert server.listings == 1


BROKEN = send(502, {"message": "oops"})
"""What may pass: asked for again, and the calls go through meanwhile."""


@pytest.mark.parametrize(
    "refused",
    [
        send(401, {"error": "Unauthorized"}),
        send(403, {"message": "no entry"}),
        send(404, {"detail": "Not Found"}),
        send(405, b""),
        send(500, {"message": "oops"}),
        BROKEN,
        send(200, b"<html>Welcome</html>", Content_Type="text/html"),
    ],
    ids=["401", "403", "404", "405", "500", "502", "html"],
)
async def test_a_refused_list_lets_calls_through(server: Script, make: Make, refused: Any) -> None:
    server.models = refused
    one = make(dialect="vllm")
    assert (await one.dialect()).name == "vllm"
    assert await one.known_window() is None
    if refused is not BROKEN:
        assert server.listings == 1, "it is not asked again for every call"
    one.forget()
    server.be_vllm(window=7)
    assert await one.known_window() == 7
    server.models = refused
    model = OpenAIModel("tiny", base_url=server.url, window=50, dialect="vllm")
    for _ in range(3):
        assert (await model.complete(request(thinking=False))).text == "hello"
    assert await model.window() == 50
    assert "chat_template_kwargs" in server.bodies[-1]
    await model.aclose()


@pytest.mark.parametrize("busy", [send(503, {"message": "loading"}), hang_up], ids=["503", "lost"])
async def test_a_server_that_is_away_is_no_unknown_one(
    server: Script, make: Make, busy: Any
) -> None:
    server.models = busy
    one = make()
    for ask in (one.dialect, one.known_window, one.window, one.listing):
        with pytest.raises((ServerBusy, ConnectionFailed)):
            await ask()
    server.be_vllm()
    assert (await one.dialect()).name == "vllm"


async def test_nobody_listens(make: Make, nobody: str) -> None:
    with pytest.raises(ConnectionFailed):
        await make(nobody).dialect()
    with pytest.raises(ConnectionFailed):
        await asyncio.to_thread(make(nobody).ask, "/version")


async def test_what_was_said_is_forgotten_when_asked_to(server: Script, make: Make) -> None:
    one = make()
    server.be_vllm(window=100)
    assert await one.window() == 100
    server.serve_models({"id": "tiny", "max_model_len": 50})
    assert await one.window() == 100
    one.forget()
    assert await one.window() == 50
    assert (await one.dialect()).name == "plain"


@pytest.mark.parametrize("path", ["", "/v1", "/v1/", "/api/v1"])
async def test_paths_beside_the_chat_start_at_the_root(
    server: Script, make: Make, path: str
) -> None:
    server.others = {
        "/version": send(200, {"version": "0.32.0"}),
        "/api/version": send(200, {"version": "0.33"}),
        "/tokenize": send(200, {"tokens": [1]}),
        "/api/tokenize": send(200, {"tokens": [1]}),
    }
    one = make(server.url.removesuffix("/v1") + path)
    version = await asyncio.to_thread(one.ask, "/version")
    assert version == {"version": "0.33" if path.startswith("/api") else "0.32.0"}
    body = {"prompt": "a\u2060é"}
    assert await asyncio.to_thread(one.ask, "/tokenize", body) == {"tokens": [1]}
    assert [asked for _, asked in server.asked] == [None, body]


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        (send(404, {"detail": "Not Found"}), ModelNotFound),
        (send(401, {"error": "Unauthorized"}), AuthenticationFailed),
        (send(500, b""), ServerFailed),
        (send(200, [1]), BadResponse),
        (send(200, b"null"), BadResponse),
        (send(200, b'{"tokens": [1'), BadResponse),
        (send(200, b"<html>", Content_Type="text/html"), BadResponse),
        (hang_up, ConnectionFailed),
    ],
    ids=["404", "401", "500", "list", "null", "half", "html", "lost"],
)
async def test_questions_beside_the_chat_have_the_same_errors(
    server: Script, make: Make, behaviour: Any, kind: type[ModelError]
) -> None:
    server.others = {"/tokenize": behaviour}
    with pytest.raises(kind) as caught:
        await asyncio.to_thread(make().ask, "/tokenize", {"prompt": "a"})
    assert type(caught.value) is kind
    assert f"plain:tiny at {server.url}" in str(caught.value)
    assert len(server.asked) == 1


async def test_a_hung_list_or_count_is_given_up_early(
    server: Script, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent.models.server.LIST_SECONDS", 0.2)
    server.models, server.others = slow(5), {"/tokenize": slow(5)}
    one = make(timeout=600.0)
    with pytest.raises(RequestTimeout, match=r"no answer within 0\.2 s"):
        await one.listing()
    with pytest.raises(RequestTimeout, match=r"no answer within 0\.2 s"):
        await asyncio.to_thread(one.ask, "/tokenize", {})
    server.models = trickle  # a piece at a time, each in time
    with pytest.raises(RequestTimeout, match=r"no answer within 0\.2 s"):
        await make(timeout=600.0).listing()
    server.others = {"/tokenize": trickle}
    with pytest.raises(RequestTimeout, match=r"no answer within 0\.2 s"):
        await asyncio.to_thread(one.ask, "/tokenize", {})


async def test_unknown_servers_are_spoken_to_plainly(server: Script) -> None:
    ask = request(thinking=False, pattern=r"\S+", seed=1)
    await complete(server, ask, tokens=True)
    assert set(server.bodies[-1]) == {
        "model",
        "messages",
        "max_tokens",
        "temperature",
        "top_p",
        "seed",
    }
    server.serve_models({"id": "tiny", "owned_by": "vllm"})
    await complete(server, ask, tokens=True)
    assert server.bodies[-1]["structured_outputs"] == {"regex": r"\S+"}
    assert server.bodies[-1]["return_token_ids"] is True


async def test_no_secret_in_what_went_wrong(
    server: Script, make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    words = {"error": {"message": f"wrong key {KEY}, pass word-1!"}}
    one = make(server.url.replace("://", "://user:word-1%21@"))
    shown = [repr(one), repr(one.endpoint), str(one)]
    for said in (send(401, words), send(500, words), send(200, [KEY, "word-1!"])):
        server.models, server.others = said, {"/tokenize": said}
        with pytest.raises(ModelError) as caught:
            await asyncio.to_thread(one.ask, "/tokenize", {"prompt": "a"})
        shown += traceback.format_exception(caught.value)
        with pytest.raises(ModelError) as caught:
            await one.listing()
        shown += traceback.format_exception(caught.value)
        await one.dialect()
        one.forget()
    for secret in (KEY, "word-1", "user:"):
        assert secret not in "".join(shown) + caplog.text
    assert "wrong key ***, pass ***" in "".join(shown)


@pytest.mark.parametrize(
    ("model", "served", "known"),
    [("tiny", ["tiny"], True), ("tiny:lora", ["tiny"], True), ("tiny", ["a", "b"], False),
     ("tiny", [], True), ("a:lora", ["b"], False)],
    ids=["served", "adapter", "others", "none", "adapter of another"],
)  # fmt: skip
async def test_a_name_is_compared_with_the_list(
    server: Script, model: str, served: list[str], known: bool
) -> None:
    server.serve_models(*({"id": name} for name in served))
    one = Server(model, Clients(model, server.url, None, {}, 60), DIALECTS["sglang"])
    if known:
        await one.check_name()
    else:
        with pytest.raises(ModelNotFound, match="no model of that name; it serves '"):
            await one.check_name()
    server.models = send(401, {"error": "Unauthorized"})
    one.forget()
    await one.check_name()
    await one.aclose()
