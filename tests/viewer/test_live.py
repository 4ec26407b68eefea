import socket
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from tests.viewer import made

from memagent import RunStore
from memagent_viewer.live import LiveServer
from memagent_viewer.view import View


@pytest.fixture
def live(store: RunStore) -> Iterator[LiveServer]:
    """A server of a run that stopped after three chunks."""
    made.read(store, chunks=3)
    with LiveServer([View(store, "read")]) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(5)


def get(live: LiveServer, target: str, **headers: str) -> httpx.Response:
    return httpx.get(live.address + target, headers=headers, trust_env=False)


def test_the_page_asks_only_its_server(live: LiveServer) -> None:
    reply = get(live, "")
    assert reply.status_code == 200
    assert 'data-live="live"' in reply.text
    assert "connect-src &#x27;self&#x27;" in reply.text
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Referrer-Policy"] == "no-referrer"


def test_news_come_once(live: LiveServer, store: RunStore) -> None:
    version, _, packed = get(live, "news?version=").content.partition(b"\n")
    assert b'"status": "stopped"' in zlib.decompress(packed, wbits=-15)
    same = f"news?version={version.decode()}"
    assert get(live, same).status_code == 204
    made.read(store)
    _, _, packed = get(live, same).content.partition(b"\n")
    assert b'"status": "finished"' in zlib.decompress(packed, wbits=-15)


def test_texts_are_served(live: LiveServer) -> None:
    text = zlib.decompress(get(live, "text?key=0/chunk-1").content, wbits=-15).decode()
    assert text in made.text()
    for key in (
        "0/chunk-9",
        "1/chunk-0",
        "-1/chunk-0",
        "0/update-0/q0",
        "0/said",
        "",
        "0/chunk-x",
        "²/chunk-0",
    ):
        assert get(live, f"text?key={key}").status_code == 404, key


def test_others_are_refused(live: LiveServer) -> None:
    port = live.server_address[1]
    root = f"http://127.0.0.1:{port}"
    for url in (
        f"{root}/",
        f"{root}/guess/",
        f"{root}/guess/news",
        f"{live.address}../",
        f"{live.address}x",
    ):
        assert httpx.get(url, trust_env=False).status_code == 404, url
    for host in ("evil.example", f"localhost:{port}", f"127.0.0.1:{port + 1}", ""):
        assert get(live, "", Host=host).status_code == 404, host
    assert httpx.post(live.address, trust_env=False).status_code == 501


def test_a_run_that_was_removed(live: LiveServer, store: RunStore) -> None:
    store.remove("read")
    assert get(live, "").status_code == 404
    assert get(live, "news").status_code == 404


def test_a_client_that_hangs_up_is_no_error(
    live: LiveServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def handle(error: Exception) -> str:
        with closing(socket.socket()) as client:
            try:
                raise error
            except type(error):
                live.handle_error(client, live.server_address)
        return capsys.readouterr().err

    assert handle(ConnectionResetError()) == handle(BrokenPipeError()) == ""
    assert "of ours" in handle(ValueError("of ours"))


def test_it_listens_to_this_machine_only(live: LiveServer) -> None:
    assert live.server_address[0] == "127.0.0.1"
