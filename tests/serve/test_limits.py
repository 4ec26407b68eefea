"""Attacks by size, time, framing and paths, and by what a request might have fetched."""

import asyncio
import gzip
import socket
import threading
import time
import zlib
from typing import Any

import httpx
import pytest
from tests.models.chat_server import Server, slow
from tests.serve.conftest import Serve
from tests.serve.engine import Engine, in_pieces, read_or_echo
from tests.serve.sockets import BODY, RAW, port_of, request_of, root, status_of, talk

from memagent import Message
from memagent_serve import bodies, server, wire
from memagent_serve.overflow import Conversation


def test_large_bodies_are_refused_before_they_are_read(serve: Serve, engine: Engine) -> None:
    url = serve(max_body=10_000)
    assert status_of(talk(url, request_of(RAW, Content_Length="10001")[:300])) == 413
    assert engine.raws == []


def test_large_bodies_of_unknown_size_are_cut_off(serve: Serve, engine: Engine) -> None:
    url = serve(max_body=10_000)
    head = request_of(b"", Transfer_Encoding="chunked").replace(b"Content-Length: 0\r\n", b"")
    piece = b"1000\r\n" + b" " * 4096 + b"\r\n"
    assert status_of(talk(url, head + piece * 4)) == 413
    assert engine.raws == []


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_bombs_are_not_unpacked(
    serve: Serve, engine: Engine, http: httpx.Client, encoding: str
) -> None:
    url = serve(max_body=1_000_000)
    pack = gzip.compress if encoding == "gzip" else zlib.compress
    bomb = pack(b" " * 200_000_000 + RAW)
    assert len(bomb) < 1_000_000
    begin = time.monotonic()
    headers = {"Content-Type": "application/json", "Content-Encoding": encoding}
    response = http.post(f"{url}/chat/completions", content=bomb, headers=headers)
    assert response.status_code == 413
    assert time.monotonic() - begin < 2
    assert engine.raws == []


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("item", [b"[]", b'{"":[]}', b"1", b'{"role":"user","content":"a"}'])
def test_bodies_whose_values_would_take_many_times_their_size_are_refused(
    serve: Serve, engine: Engine, http: httpx.Client, item: bytes, packed: bool
) -> None:
    raw = b'{"messages":[' + b",".join([item] * (90_000 // len(item + b","))) + b"]}"
    headers = {"Content-Type": "application/json"}
    if packed:
        raw, headers["Content-Encoding"] = gzip.compress(raw), "gzip"
    url = serve(max_body=100_000)
    response = http.post(f"{url}/chat/completions", content=raw, headers=headers)
    assert response.status_code == 413
    assert "1,562 JSON values" in response.text
    assert engine.raws == []


def test_commas_and_brackets_in_texts_are_not_counted_as_values(
    serve: Serve, engine: Engine, http: httpx.Client
) -> None:
    table = '1,"[{",2\n' * 9_000
    url = serve(max_body=200_000)
    response = http.post(f"{url}/chat/completions", json={**BODY, "metadata": {"table": table}})
    assert response.status_code == 200
    assert len(engine.raws) == 1


@pytest.mark.parametrize(
    ("raw", "headers"),
    [
        (b"", {}),
        (b"{", {}),
        (b"[1]", {}),
        (b'"x"', {}),
        (b"\xff\xfe", {}),
        (RAW.decode().encode("utf-16"), {}),
        (b"[" * 100_000, {}),
        (b'{"a":' * 50_000, {}),
        (b'{"a": ' + b"9" * 10_000 + b"}", {}),
        (RAW, {"Content_Encoding": "gzip"}),
        (gzip.compress(RAW)[:-4], {"Content_Encoding": "gzip"}),
        (gzip.compress(RAW) * 2, {"Content_Encoding": "gzip"}),
        (gzip.compress(gzip.compress(RAW)), {"Content_Encoding": "gzip"}),
    ],
    ids=range(13),
)
def test_bodies_that_are_no_json_object_are_refused(
    engine: Engine, url: str, raw: bytes, headers: dict[str, str]
) -> None:
    said = talk(url, request_of(raw, **headers))
    assert status_of(said) == 400
    assert b'"error"' in said
    assert engine.raws == []


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", "compress", "chunked"])
def test_other_encodings_are_refused(engine: Engine, url: str, encoding: str) -> None:
    assert status_of(talk(url, request_of(Content_Encoding=encoding))) == 415
    assert engine.raws == []


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_slow_heads_are_cut_off(monkeypatch: pytest.MonkeyPatch, url: str, before: bytes) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", port_of(url)), 5) as plain:
        if before:
            plain.sendall(before)
            assert plain.recv(65536).startswith(b"HTTP/1.1 200")
        begin = time.monotonic()
        for byte in request_of():  # a byte at a time, as slowloris does
            try:
                plain.sendall(bytes([byte]))
            except OSError:
                break
            time.sleep(0.05)
        assert time.monotonic() - begin < 3


def test_slow_bodies_are_cut_off(monkeypatch: pytest.MonkeyPatch, engine: Engine, url: str) -> None:
    monkeypatch.setattr(bodies, "BODY_SECONDS", 0.5)
    assert status_of(talk(url, request_of()[:-1])) == 408
    assert engine.raws == []


def test_clients_that_do_not_read_are_dropped(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, url: str
) -> None:
    monkeypatch.setattr(wire, "SEND_SECONDS", 0.5)
    engine.default = in_pieces([b"x" * 1_000_000] * 40)
    came = 0
    with socket.create_connection(("127.0.0.1", port_of(url)), 10) as plain:
        plain.sendall(request_of())
        time.sleep(2)
        while piece := plain.recv(1 << 20):
            came += len(piece)
    assert came < 39_000_000


def test_other_requests_do_not_wait_while_messages_are_read(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, url: str, http: httpx.Client
) -> None:
    """There may be hundreds of thousands of them, so that takes a thread of its own."""
    threads: set[threading.Thread] = set()
    real = Message.from_openai

    def note(fields: Any) -> Message:
        threads.add(threading.current_thread())
        return real(fields)

    monkeypatch.setattr(Message, "from_openai", note)
    assert http.post(f"{url}/chat/completions", json=BODY).status_code == 200
    assert len(engine.raws) == 1
    assert {thread.name.partition("_")[0] for thread in threads} == {"asyncio"}  # its pool


async def test_a_request_does_not_wait_until_another_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, ended = threading.Event(), threading.Event()
    real = Message.from_openai

    def read(fields: dict[str, Any]) -> Message:
        if fields["content"] == "large":
            begun.set()
            assert ended.wait(5)
        return real(fields)

    monkeypatch.setattr(Message, "from_openai", read)
    large, small = (
        Conversation([{"role": "user", "content": text}], [], None) for text in ("large", "small")
    )
    reading = asyncio.create_task(large.read())
    await asyncio.to_thread(begun.wait, 5)
    found = await small.read()
    ended.set()
    assert (await reading)[0][0].content == "large"
    assert await small.read() is found


def test_too_many_requests_are_told_to_wait(
    serve: Serve, engine: Engine, http: httpx.Client
) -> None:
    url = serve(max_requests=2)
    engine.default = slow(1)
    codes: list[int] = []

    def post() -> int:
        codes.append(http.post(f"{url}/chat/completions", json=BODY).status_code)
        return codes[-1]

    threads = [threading.Thread(target=post) for _ in range(4)]
    for thread in threads:
        thread.start()
    engine.waiting.wait(5)
    assert http.get(f"{root(url)}/health").status_code == 200
    for thread in threads:
        thread.join(10)
    assert sorted(codes) == [200, 200, 429, 429]
    assert post() == 200


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: 5, 6\r\n",
        b"Content-Length: +5\r\n",
        b"Content-Length: 0x5\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
    ],
)
def test_ambiguous_lengths_are_refused(engine: Engine, url: str, head: bytes) -> None:
    start = request_of(b"").partition(b"Connection")[0]
    inner = b"0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    said = talk(url, start + head + b"Connection: close\r\n\r\n" + inner)
    assert said.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501"))
    assert b'"status":"ok"' not in said
    assert engine.raws == []


def test_control_characters_do_not_reach_the_engine(engine: Engine, url: str) -> None:
    assert status_of(talk(url, request_of(User_Agent="a\x00b"))) == 400
    assert engine.raws == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../../etc/passwd",
        "/v1/models/..%2f..%2fetc%2fpasswd",
        "/v1/chat/completions/../tokenize",
        "/metrics",
        "/tokenize",
        "http://evil.example/v1/models",
        "/v1/files",
    ],
)
def test_paths_lead_nowhere_else(engine: Engine, url: str, path: str) -> None:
    before = len(engine.asked)
    for method in (b"GET", b"POST"):
        raw = request_of(path=path).replace(b"POST", method, 1)
        assert status_of(talk(url, raw)) in (404, 405)
    assert engine.raws == []
    assert len(engine.asked) == before


def test_the_engine_is_asked_at_one_path_whatever_the_query(engine: Engine, url: str) -> None:
    raw = request_of(path="/v1/chat/completions?url=http://evil.example/")
    assert status_of(talk(url, raw)) == 200
    assert engine.paths == ["/v1/chat/completions"]


def test_nothing_that_a_request_names_is_fetched(
    engine: Engine, serve: Serve, http: httpx.Client
) -> None:
    engine.default = read_or_echo
    url = serve(reading={"gate": "update"})
    hits: list[Any] = []

    class Trap(Server):
        def finish_request(self, request: Any, client_address: Any) -> None:
            hits.append(client_address)

    with Trap(("127.0.0.1", 0), object) as trap:  # pyright: ignore[reportArgumentType]
        thread = threading.Thread(target=trap.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        there = f"http://127.0.0.1:{trap.server_address[1]}/x"
        long = f"See {there} and file:///etc/passwd. " * 300
        image = {"type": "image_url", "image_url": {"url": there}}
        question = {"type": "text", "text": f"What is at {there}?"}
        for content in (
            [image, question],
            [{"type": "text", "text": long}, question],
            f"<document>{there}\n{long}</document>{there}",
        ):
            messages = [{"role": "user", "content": content}]
            body = BODY | {"messages": messages, "base_url": there, "callback": there}
            headers = {"X-Forwarded-Host": there, "Referer": there, "X-Original-Url": there}
            response = http.post(f"{url}/chat/completions", json=body, headers=headers)
            assert response.status_code == 200
        trap.shutdown()
        thread.join(5)
    assert hits == []


def test_an_idle_connection_outlives_the_patience_of_clients(serve: Serve) -> None:
    """Of httpx and the `openai` client, 5 s: whoever closes first loses the other's next request."""
    url, used = root(serve()), list[object]()
    with httpx.Client(limits=httpx.Limits(keepalive_expiry=60), trust_env=False) as client:
        for seconds in (0.0, 5.5):
            time.sleep(seconds)
            stream = client.get(f"{url}/health").extensions["network_stream"]
            used.append(stream.get_extra_info("client_addr"))
    assert used[0] == used[1]
