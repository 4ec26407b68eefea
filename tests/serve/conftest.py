"""Endpoints on real sockets, in front of an engine that keeps what it was sent."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, OpenAI
from tests.serve.engine import Engine, serving

from memagent import RunStore, open_model
from memagent_serve import Settings
from memagent_serve.server import make_server

Serve = Callable[..., str]
Start = Callable[..., tuple[subprocess.Popen[str], str]]
MODEL = "tiny"
SECRET = "the-key-of-the-engine-8f2c"
KEY = "the-key-of-a-caller-77ab"


@pytest.fixture
def engine() -> Iterator[Engine]:
    with serving() as engine:
        yield engine


@contextmanager
def listening(url: str, store: RunStore | Path, **settings: Any) -> Iterator[str]:
    """An endpoint in front of the engine at a URL; yields its own URL."""
    model = open_model(f"vllm:{MODEL}", base_url=url, api_key=SECRET)
    with listening_with(model, store, **settings) as own:
        yield own


@contextmanager
def listening_with(model: Any, store: RunStore | Path, **settings: Any) -> Iterator[str]:
    """An endpoint in front of any model."""
    said: list[str] = []
    server = make_server(model, Settings(store=store, **settings), port=0, grace=1, say=said.append)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    end = time.monotonic() + 20
    while not said:
        assert thread.is_alive()
        assert time.monotonic() < end, "the endpoint did not start"
        time.sleep(0.01)
    yield said[0].split()[-1]
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def serve(engine: Engine, store: RunStore) -> Iterator[Serve]:
    """Starts endpoints with settings; returns their URLs."""
    with ExitStack() as running:

        def start(**settings: Any) -> str:
            return running.enter_context(
                listening(engine.url, settings.pop("store", store), **settings)
            )

        yield start


@pytest.fixture
def url(serve: Serve) -> str:
    """An endpoint with the default settings."""
    return serve()


@pytest.fixture
def client(url: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
async def aclient(url: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """A client that adds nothing of its own."""
    with httpx.Client(timeout=30, trust_env=False) as client:
        yield client


@pytest.fixture
def start(engine: Engine, tmp_path: Path) -> Iterator[Start]:
    """Starts the command with options, in a process of its own; returns that and its URL."""
    begun: list[subprocess.Popen[str]] = []
    line = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "memagent",
        "serve",
        f"vllm:{MODEL}",
        "--port",
        "0",
    ]
    line += ["--base-url", engine.url, "--store", str(tmp_path / "runs.sqlite"), "--gate", "update"]
    environ = os.environ | {"MEMAGENT_API_KEY": SECRET, "MEMAGENT_SERVE_KEYS": KEY}
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}

    def start(*options: str) -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen([*line, *options], env=environ, cwd=tmp_path, **both)  # pyright: ignore[reportCallIssue, reportArgumentType]
        begun.append(process)
        assert process.stdout
        first = process.stdout.readline()
        assert "serves at" in first, first + process.stdout.read()
        return process, first.split()[-1]

    yield start
    for process in begun:
        process.kill()
        process.communicate(timeout=20)


def ended(process: subprocess.Popen[str], number: int) -> str:
    """Ends it with a signal; returns what it said."""
    process.send_signal(number)
    return process.communicate(timeout=20)[0]
