"""Servers that die, refuse, shrink; clients that leave and are killed. All of it real."""

import asyncio
import json
import logging
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engines.servers import EngineServer

from memagent import MemoryAgent, RunStore, open_model
from memagent.errors import AuthenticationFailed, ContextOverflow, ModelError, ModelNotFound
from memagent.events import MemoryUpdated, Retried
from memagent.memory.state import restore
from memagent.messages import ChatRequest, Completion, Message
from memagent.models.base import ChatModel, Wrapper
from memagent.models.openai import OpenAIModel

QUESTION = "Where was he in 1812?"
TEXT = "\n\n".join(
    f"In the year {1800 + i} the old prince rode to village number {i} and spoke to nobody there, "
    f"though Natásha had written to him {i} times about the sale of the forest."
    for i in range(160)
)


def agent(engine: EngineServer, store: Path | RunStore | None, **options: Any) -> MemoryAgent:
    options = {"window": 1024, "degenerate": "take", "api_key": engine.api_key, **options}
    model = open_model(
        f"{engine.engine}:{engine.model}", base_url=engine.url, api_key=options.pop("api_key")
    )
    return MemoryAgent(model, store=store, **options)


def generated(engine: EngineServer) -> float:
    names = ("vllm:generation_tokens_total", "sglang:generation_tokens_total")
    return sum(map(engine.metrics().total, names))


async def until(true: Callable[[], bool], seconds: float) -> float:
    start = time.monotonic()
    while not await asyncio.to_thread(true):
        assert time.monotonic() - start < seconds, f"not within {seconds} s"
        await asyncio.sleep(0.05)
    return time.monotonic() - start


class Struck(Wrapper):
    """Kills the server with its fourth call in it, and starts it again.

    It is halted before the call is sent, so that the call is surely there when the end comes.
    """

    def __init__(self, inner: ChatModel, engine: EngineServer) -> None:
        super().__init__(inner)
        self.engine = engine
        self.calls = 0
        self.back: asyncio.Task[EngineServer] | None = None

    async def complete(self, request: ChatRequest) -> Completion:
        self.calls += 1
        if self.calls != 4:
            return await self.inner.complete(request)
        self.engine.halt()
        call = asyncio.create_task(self.inner.complete(request))
        await asyncio.sleep(0.5)
        assert not call.done()
        await asyncio.to_thread(self.engine.kill)
        self.back = asyncio.create_task(asyncio.to_thread(self.engine.start))
        return await call


@pytest.mark.timeout(600)
async def test_a_server_killed_in_the_middle_of_a_run_comes_back_and_the_run_finishes(
    engine: EngineServer, tmp_path: Path
) -> None:
    model = Struck(
        open_model(f"{engine.engine}:{engine.model}", base_url=engine.url, api_key=engine.api_key),
        engine,
    )
    reader = MemoryAgent(model, window=1024, degenerate="take", store=tmp_path / "runs.sqlite")
    planned = await reader.aestimate(TEXT, QUESTION)
    stream = reader.stream(TEXT, QUESTION)
    retried = 0
    async for event in stream:
        retried += isinstance(event, Retried)
    assert model.back is not None
    await model.back
    (result,) = stream.results
    assert result.answer
    assert retried > 0
    assert result.usage.calls == planned.calls_max
    assert result.usage.retries == retried
    assert result.usage.prompt_tokens <= planned.prompt_tokens
    await reader.aclose()


@pytest.mark.timeout(600)
async def test_a_server_that_comes_back_with_a_smaller_window_stops_the_run_and_loses_nothing(
    engine: EngineServer, tmp_path: Path
) -> None:
    store = await asyncio.to_thread(RunStore, tmp_path / "runs.sqlite")
    reader = agent(engine, store)
    stream = reader.stream(TEXT, QUESTION, run_id="shrunk")
    window, updates = engine.window, 0
    back: asyncio.Task[EngineServer] | None = None

    async def read() -> None:
        nonlocal updates, back
        async for event in stream:
            updates += isinstance(event, MemoryUpdated)
            if updates == 2 and back is None:
                engine.kill()
                back = asyncio.create_task(asyncio.to_thread(engine.start, 512))

    with pytest.raises(ContextOverflow) as caught:
        await read()
    assert back is not None
    await back
    assert "512" in str(caught.value)
    assert caught.value.run_id == "shrunk"
    (state,) = await asyncio.to_thread(restore, store, "shrunk", 1)
    assert state.next_chunk >= 2
    await asyncio.to_thread(engine.stop)
    await asyncio.to_thread(engine.start, window)
    result = await reader.aresume("shrunk", TEXT)
    assert not isinstance(result, list)
    assert result.answer
    assert result.usage.calls == (await reader.aestimate(TEXT, QUESTION)).calls_max
    await reader.aclose()
    await asyncio.to_thread(store.close)


async def test_a_cancelled_call_stops_the_servers_work(engine: EngineServer) -> None:
    model = OpenAIModel(
        engine.model,
        base_url=engine.url,
        api_key=engine.api_key,
        extra_body={"ignore_eos": True},
    )
    ask = ChatRequest(messages=(Message(role="user", content="Go on."),), max_tokens=1900)
    await model.counter()

    before = generated(engine)
    call = asyncio.create_task(model.complete(ask))
    await until(lambda: engine.running() > 0, 10)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    # SGLang looks after lost clients only every few seconds.
    await until(lambda: engine.running() == 0, 10)
    await asyncio.sleep(0.5)
    done = generated(engine)
    await asyncio.sleep(0.5)
    assert generated(engine) == done
    if engine.engine == "vllm":
        assert done - before < 1500, "it went on to the end"
    await model.aclose()


async def test_cancelling_a_run_stops_the_servers_work(engine: EngineServer) -> None:
    reader = agent(engine, None, sampling=None)
    run = asyncio.create_task(reader.aask(TEXT, QUESTION))
    await until(lambda: engine.running() > 0, 20)
    run.cancel()
    await asyncio.gather(run, return_exceptions=True)
    await until(lambda: engine.running() == 0, 10)
    await reader.aclose()
    assert asyncio.all_tasks() == {asyncio.current_task()}


CLIENT = """
import sys
from pathlib import Path
from typing import Any
from memagent import MemoryAgent, open_model
url, model, key, folder = sys.argv[1:]
served = open_model(model, base_url=url, api_key=key or None)
agent = MemoryAgent(served, window=1024, degenerate="take", store=Path(folder) / "runs.sqlite")
print(agent.ask(Path(folder) / "text.txt", "Where was he in 1812?", run_id="r").answer)
"""


def committed(store: Path) -> int:
    if not store.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as db:
            made = "SELECT count(*) FROM effects WHERE kind LIKE '%/q_' AND committed IS NOT NULL"
            return db.execute(made).fetchone()[0]
    except sqlite3.OperationalError:
        return 0


@pytest.mark.timeout(600)
def test_a_client_killed_again_and_again_resumes(engine: EngineServer, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    store = tmp_path / "runs.sqlite"
    arguments = [engine.url, f"{engine.engine}:{engine.model}", engine.api_key or "", str(tmp_path)]
    with agent(engine, None) as reader:
        planned = reader.estimate(tmp_path / "text.txt", QUESTION)
    for _ in range(3):
        before = committed(store)
        child = subprocess.Popen(
            [sys.executable, "-c", CLIENT, *arguments], stdout=subprocess.PIPE, env=dict(os.environ)
        )
        while committed(store) < before + 3:
            assert child.poll() is None, "the client ended by itself"
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert committed(store) < planned.calls_max
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip()
    opened = RunStore(store)
    usage = opened.usage("r")
    assert usage.calls == planned.calls_max
    assert usage.repeated <= 3
    events = list(opened.events("r"))
    assert [event.seq for event in events] == list(range(len(events)))
    updates = [event.chunk for event in events if isinstance(event, MemoryUpdated)]
    assert updates == list(range(planned.chunks))
    opened.close()


async def test_a_wrong_key_and_a_wrong_name_fail_at_once(
    engine: EngineServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "wrong-key-0123456789"
    start = time.monotonic()
    stranger = agent(engine, None, api_key=wrong)
    with pytest.raises(AuthenticationFailed) as refused:
        await stranger.aask(TEXT, QUESTION)
    await stranger.aclose()
    assert refused.value.attempts == 1
    assert "MEMAGENT_API_KEY" in str(refused.value)
    other = open_model(
        f"{engine.engine}:no-such-model", base_url=engine.url, api_key=engine.api_key
    )
    reader = MemoryAgent(other, store=None)
    with pytest.raises(ModelNotFound) as missing:
        await reader.aask(TEXT, QUESTION)
    await reader.aclose()
    assert missing.value.attempts == 1
    assert engine.model in str(missing.value)
    assert time.monotonic() - start < 10
    assert wrong not in caplog.text
    assert wrong not in str(refused.value)


async def test_the_key_is_nowhere_to_be_seen(
    engine: EngineServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert engine.api_key
    reader = agent(engine, tmp_path / "runs.sqlite")
    result = await reader.aask(TEXT[:3000], QUESTION)
    assert result.answer
    seen = [caplog.text, repr(reader), repr(reader.model), json.dumps(reader.recipe())]
    seen += await asyncio.to_thread(lambda: [repr(result), str(vars(result))])
    files = await asyncio.to_thread(
        lambda: [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    )
    seen += [content.decode("latin-1") for content in files]
    assert not [text for text in seen if engine.api_key in text]
    await reader.aclose()


async def test_nothing_is_left_open(engine: EngineServer) -> None:
    def descriptors() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def once() -> None:
        reader = agent(engine, None)
        await asyncio.gather(*(reader.aask(TEXT[:4000], QUESTION) for _ in range(8)))
        await reader.aclose()

    await once()  # threads and libraries keep a few for themselves
    before = descriptors()
    for _ in range(3):
        await once()
    assert descriptors() <= before
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_server_without_a_list_entry_for_the_window_is_asked_to_say_more(
    engine: EngineServer,
) -> None:
    model = open_model(
        f"{engine.engine}:{engine.model}",
        base_url=engine.url,
        api_key=engine.api_key,
        window=10**9,
    )
    assert await model.window() == engine.window, "never above what the server says"
    with pytest.raises(ModelError):
        await model.complete(
            ChatRequest(messages=(Message(role="user", content="x" * 20000),), max_tokens=1)
        )
    await model.aclose()
