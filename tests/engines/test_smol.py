"""A language model that reads English on a real server: counted as the server counts, resumed, several at once."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from filelock import FileLock
from tests.engines import commands
from tests.engines.fixtures import API_KEY, StartServer
from tests.engines.servers import EngineServer

from memagent import (
    ChatRequest,
    MemoryAgent,
    Message,
    Result,
    RunStore,
    Sampling,
    StopReason,
    open_model,
)
from memagent.models.base import ChatModel
from memagent.trajectory import Conversation
from memagent_bench.perf.chunks import book
from memagent_engines.smol import smol_folder

WINDOW, CHUNK, MEMORY = 2048, 512, 64
"""Of the readings; the server's window is the model's own."""
TEXT = book()[2000:7000]
NEEDLE = "The code of the blue door is 4761."
QUESTION = "What is the code of the blue door?"
GREEDY = Sampling(temperature=0.0)

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def smol(start_server: StartServer, request: pytest.FixtureRequest) -> Iterator[EngineServer]:
    """One such server at a time, also where engines are tested side by side: two are slow on two cores."""
    engine = str(request.config.getoption("--engine"))
    folder = smol_folder()
    flags = (*commands.REPORTING[engine], *commands.smol(engine))
    with FileLock(folder.with_name(f"{folder.name}.served.lock")):
        server = start_server(window=8192, api_key=API_KEY, flags=flags)
        yield server
        server.stop()  # while the lock is held


@pytest.fixture
def store() -> Iterator[RunStore]:
    store = RunStore(None)
    yield store
    store.close()


def model_of(server: EngineServer) -> ChatModel:
    spec = f"{server.engine}:{server.model}"
    return open_model(spec, base_url=server.url, api_key=server.api_key)


def reader(server: EngineServer, store: RunStore | Path | None, seed: int = 0) -> MemoryAgent:
    return MemoryAgent(
        model_of(server),
        window=WINDOW,
        chunk_tokens=CHUNK,
        memory_tokens=MEMORY,
        sampling=GREEDY,
        seed=seed,
        store=store,
    )


async def test_it_speaks_english(smol: EngineServer) -> None:
    model = model_of(smol)
    ask = Message(role="user", content="What is the capital of France? Answer in one sentence.")
    request = ChatRequest(messages=(ask,), max_tokens=30, sampling=GREEDY)
    assert "Paris" in (await model.complete(request)).text
    assert await model.window() == 8192
    await model.aclose()


@pytest.mark.parametrize("text", [TEXT, "Natásha: 1,812\n\n42  x", "<|im_end|>", "你好 🙂"])
async def test_counts_are_the_servers(smol: EngineServer, text: str) -> None:
    model = model_of(smol)
    messages = (
        Message(role="system", content="You keep notes."),
        Message(role="user", content=text),
    )
    counter = await model.counter()
    counted = await asyncio.to_thread(counter.count_messages, messages)
    done = await model.complete(ChatRequest(messages=messages, max_tokens=1, sampling=GREEDY))
    assert done.usage.prompt_tokens == counted
    await model.aclose()


def test_a_needle_and_a_question_are_read_end_to_end(smol: EngineServer, store: RunStore) -> None:
    """So small a model may well lose the needle: what counts is that all of it was read, within the window."""
    before = smol.requests()
    with reader(smol, store) as agent:
        result = agent.ask(TEXT[:2500] + NEEDLE + TEXT[2500:], QUESTION, run_id="r")
    assert result.stop_reason is StopReason.ANSWERED
    assert result.answer
    chunks = [event for event in store.events("r") if event.type == "chunk_read"]
    assert len(chunks) >= 3
    assert chunks[-1].last
    assert any(NEEDLE in prompt_of(conversation) for conversation in store.conversations("r"))
    # A reply of so small a model may be degenerate, and is asked for again.
    usage = result.usage
    assert usage.calls == len(chunks) + 1 == smol.requests() - before - usage.retries


def prompt_of(conversation: Conversation) -> str:
    return " ".join(message.content for message in conversation.messages)


def test_several_readings_at_once_do_not_mix(smol: EngineServer, store: RunStore) -> None:
    names = ("red", "blue", "green")

    async def read() -> list[Result]:
        async with reader(smol, store) as agent:
            asked = [
                agent.aask(TEXT[:2000], f"What is the code of the {name} door?", run_id=name)
                for name in names
            ]
            return await asyncio.gather(*asked)

    for name, result in zip(names, asyncio.run(read()), strict=True):
        assert result.stop_reason is StopReason.ANSWERED
        for conversation in store.conversations(name):
            assert f"the {name} door" in prompt_of(conversation)


def test_a_killed_reading_goes_on(smol: EngineServer, tmp_path: Path) -> None:
    document, path = tmp_path / "book.txt", tmp_path / "runs.sqlite"
    document.write_text(TEXT)
    line = [sys.executable, "-m", "memagent"]
    ask = [*line, "ask", str(document), QUESTION, "--model", f"{smol.engine}:{smol.model}"]
    ask += ["--base-url", smol.url, "--window", str(WINDOW), "--chunk-tokens", str(CHUNK)]
    ask += ["--memory-tokens", str(MEMORY), "--store", str(path), "--run-id", "r"]
    environment = os.environ | {"MEMAGENT_API_KEY": API_KEY}
    before = smol.requests()
    first = subprocess.Popen(ask, env=environment, stdout=subprocess.DEVNULL)
    while not _updates(path):
        assert first.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait()
    resume = [*line, "resume", "r", "--store", str(path)]
    done = subprocess.run(resume, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with closing(RunStore(path)) as store:
        usage = store.usage("r")
    assert smol.requests() - before - usage.retries <= usage.calls + 1, (
        "at most the call of the kill was sent twice"
    )


def _updates(path: Path) -> int:
    if not path.is_file():
        return 0
    with closing(RunStore(path)) as store:
        return 0 if store.find("r") is None else store.count("r", "update/q0")
