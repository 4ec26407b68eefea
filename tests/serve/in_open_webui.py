"""The function of examples/open_webui in a real Open WebUI, over its own API: `make test-open-webui`.

Open WebUI pins all it needs, so it has a venv of its own, and these tests run when they are named.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serve.conftest import MODEL, Serve
from tests.serve.engine import Engine, read_or_echo
from tests.serve.test_reading import DOCUMENT, FACT, QUESTION, chunks

ROOT = Path(__file__).parents[2]
COMMANDS = ROOT / "build" / "open-webui" / "bin"
PIPE = (ROOT / "examples" / "open_webui" / "pipe.py").read_text()
RESULT = ROOT / "tests" / "open-webui-result.txt"
NAME = f"memagent.{MODEL}"
KEY = "the-key-of-open-webui-52be"
SETTINGS = {
    # Nothing is fetched: no model for embeddings, no packages, no news.
    "OFFLINE_MODE": "true",
    "BYPASS_EMBEDDING_AND_RETRIEVAL": "true",
    "RAG_EMBEDDING_ENGINE": "openai",
    "ENABLE_OLLAMA_API": "false",
    "ENABLE_OPENAI_API": "false",
    "DEFAULT_USER_ROLE": "user",
    "WEBUI_SECRET_KEY": "only-for-this-test",
}


@pytest.fixture(scope="module")
def webui(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an Open WebUI without users."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    folder = tmp_path_factory.mktemp("open-webui")
    line = [COMMANDS / "open-webui", "serve", "--host", "127.0.0.1", "--port", port]
    env = {n: v for n, v in os.environ.items() if not n.startswith("PYTHON")}
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            line, env=env | SETTINGS | {"DATA_DIR": str(folder)}, cwd=folder, stdout=log, stderr=log
        )
        url, end = f"http://127.0.0.1:{port}", time.monotonic() + 120
        while True:
            assert process.poll() is None, (folder / "log").read_text()[-4000:]
            assert time.monotonic() < end, (folder / "log").read_text()[-4000:]
            with suppress(httpx.HTTPError):
                if httpx.get(f"{url}/health", trust_env=False).is_success:
                    break
            time.sleep(0.5)
        yield url
        process.send_signal(signal.SIGTERM)
        process.wait(30)


@pytest.fixture(scope="module")
def users(webui: str) -> Iterator[list[httpx.Client]]:
    """Two who are signed in; the first one is the administrator, and has pasted the function."""
    clients = [httpx.Client(base_url=webui, timeout=60, trust_env=False) for _ in range(2)]
    for name, client in zip(("admin", "guest"), clients, strict=True):
        given = {"name": name, "email": f"{name}@example.org", "password": "Long-enough-1"}
        if name == "admin":
            token = client.post("/api/v1/auths/signup", json=given).raise_for_status()
        else:
            clients[0].post("/api/v1/auths/add", json={**given, "role": "user"}).raise_for_status()
            token = client.post("/api/v1/auths/signin", json=given).raise_for_status()
        client.headers["Authorization"] = f"Bearer {token.json()['token']}"
    function = {"id": "memagent", "name": "memagent", "meta": {"description": ""}, "content": PIPE}
    clients[0].post("/api/v1/functions/create", json=function).raise_for_status()
    done = clients[0].post("/api/v1/functions/id/memagent/toggle").raise_for_status()
    assert done.json()["type"] == "pipe"
    yield clients
    for client in clients:
        client.close()


@pytest.fixture
def admin(users: list[httpx.Client], serve: Serve, engine: Engine) -> httpx.Client:
    """Whose function knows an endpoint and its key."""
    engine.default = read_or_echo
    set_valves(users[0], serve(reading={"gate": "update"}, keys=(KEY,)))
    listed = users[0].get("/api/models", params={"refresh": "true"}).raise_for_status().json()
    assert [model["id"] for model in listed["data"]] == [NAME]
    return users[0]


def set_valves(client: httpx.Client, url: str) -> None:
    there = "/api/v1/functions/id/memagent/valves/update"
    client.post(there, json={"url": url, "key": KEY}).raise_for_status()


def attach(client: httpx.Client, text: str) -> dict[str, str]:
    """Uploads a file; returns it as a chat names it."""
    upload = {"file": ("book.txt", text.encode(), "text/plain")}
    found = client.post("/api/v1/files/", files=upload).raise_for_status().json()
    there = f"/api/v1/files/{found['id']}"
    end = time.monotonic() + 20
    while client.get(there).json()["data"].get("status") != "completed":
        assert time.monotonic() < end
        time.sleep(0.1)
    return {"type": "file", "id": found["id"], "name": "book.txt"}


def ask(client: httpx.Client, text: str, *files: dict[str, str], **fields: Any) -> httpx.Response:
    messages = [{"role": "user", "content": text}]
    body = {"model": NAME, "messages": messages, "files": list(files), **fields}
    return client.post("/api/chat/completions", json=body)


def streamed(reply: httpx.Response) -> str:
    """The text of the pieces of an answer."""
    events = [line[6:] for line in reply.text.splitlines() if line.startswith("data: {")]
    choices = [choice for event in events for choice in json.loads(event).get("choices", ())]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def test_what_fits_passes(admin: httpx.Client, engine: Engine) -> None:
    assert ask(admin, "Hi").json()["choices"][0]["message"]["content"] == "Hi"
    assert streamed(ask(admin, "Hi", stream=True)) == "Hi"
    assert {body["model"] for body in engine.bodies} == {MODEL}


@pytest.mark.parametrize("streams", [False, True], ids=["whole", "streamed"])
def test_a_file_is_read(admin: httpx.Client, engine: Engine, streams: bool) -> None:
    reply = ask(admin, QUESTION, attach(admin, DOCUMENT), stream=streams)
    whole = None if streams else reply.json()["choices"][0]["message"]["content"]
    assert (whole or streamed(reply)) == FACT
    assert chunks(engine) > 3
    # The question is the user's, not Open WebUI's prompt around what it found in the file.
    asked = engine.bodies[-1]["messages"][-1]["content"]
    assert QUESTION in asked
    assert "### Task" not in asked


def test_a_chat_shows_how_far_it_is(admin: httpx.Client) -> None:
    """As the page does it: the answer and its status are kept with the chat."""
    asked, answer = str(uuid.uuid4()), str(uuid.uuid4())
    book = attach(admin, f"{DOCUMENT}\nThe end.")
    said = {"id": asked, "role": "user", "content": QUESTION, "files": [book]}
    named = {"session_id": "page", "id": answer, "parent_id": None, "user_message": said}
    begun = ask(admin, QUESTION, book, stream=True, **named).raise_for_status().json()
    end = time.monotonic() + 60
    while True:
        chat = admin.get(f"/api/v1/chats/{begun['chat_id']}").raise_for_status().json()
        message = chat["chat"]["history"]["messages"][answer]
        if message.get("done"):
            break
        assert time.monotonic() < end, message
        time.sleep(0.2)
    assert message["content"] == FACT
    statuses = [status for status in message["statusHistory"] if "description" in status]
    lines = [status["description"] for status in statuses]
    assert lines[0] == "reading"
    assert sum(line.startswith("chunk ") for line in lines) > 3
    assert [status["done"] for status in statuses][-1] is True


def test_files_of_others_stay_theirs(admin: httpx.Client, users: list[httpx.Client]) -> None:
    grants = {
        "access_grants": [{"principal_type": "user", "principal_id": "*", "permission": "read"}]
    }
    model = {"id": NAME, "name": MODEL, "meta": {}, "params": {}, **grants}
    admin.post("/api/v1/models/create", json=model).raise_for_status()
    guest = users[1]
    assert streamed(ask(guest, "Hi", stream=True)) == "Hi"
    reply = ask(guest, QUESTION, attach(admin, DOCUMENT), stream=True)
    assert "not there, or not yours" in reply.text
    assert FACT not in reply.text
    assert streamed(ask(guest, QUESTION, attach(guest, DOCUMENT), stream=True)) == FACT


def test_what_is_wrong_is_said(admin: httpx.Client) -> None:
    set_valves(admin, "http://127.0.0.1:9/v1")
    assert "this function's valves its address" in ask(admin, "Hi", stream=True).text


def main() -> int:
    """Runs the tests and writes down how they ended."""
    line = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    status = subprocess.call(line, cwd=ROOT)
    code = "from importlib.metadata import version; print(version('open-webui'))"
    known = subprocess.run(
        [COMMANDS / "python", "-c", code], capture_output=True, text=True, check=True
    )
    ended = "passed" if status == 0 else "FAILED"
    RESULT.write_text(
        f"make test-open-webui: {ended}\n{datetime.now(UTC):%Y-%m-%d}, open-webui {known.stdout.strip()}\n"
    )
    return status


if __name__ == "__main__":
    sys.exit(main())
