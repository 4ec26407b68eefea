"""Faults between endpoint and engine, kills, shutdowns, secrets, and a load that leaves nothing behind."""

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.models.chat_server import Handler, half_a_body, hang_up, send, slow
from tests.serve.conftest import KEY, MODEL, SECRET, Start, ended, listening, listening_with
from tests.serve.engine import Engine, broken_stream, read_or_echo, refuse
from tests.serve.sockets import root
from tests.serve.test_reading import DOCUMENT, FACT, QUESTION

from memagent import RunStore, open_model
from memagent.models import RetryPolicy
from memagent_serve import engine as engine_of_endpoint

FAULTS = int(os.environ.get("MEMAGENT_FAULTS", "200"))
"""Requests with a fault each. docs/reliability.md says what 1,000 gave."""
LOAD_SECONDS = float(os.environ.get("MEMAGENT_LOAD_SECONDS", "8"))
"""Of mixed load, after half of it or a minute to warm up."""
SHORT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
JSON = {"Content-Type": "application/json"}
PARTS = [{"type": "text", "text": text} for text in (DOCUMENT, QUESTION)]


def long(seed: int) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": PARTS}], "seed": seed}


def chopped(handler: Handler) -> None:
    """An answer that is cut off inside its JSON, with the right length."""
    send(200, b'{"choices": [{"message": {"content": "ha')(handler)


BAD: list[Callable[[Handler], None]] = [
    hang_up,
    half_a_body,
    broken_stream,
    chopped,
    refuse(500, "out of memory"),
    refuse(503, "loading", Retry_After="0"),
    refuse(429, "busy", Retry_After="0"),
    refuse(502, "bad gateway"),
    send(200, b""),
    send(200, b"<html>proxy</html>", Content_Type="text/html"),
]


class Faulty:
    """Fails at each `every`-th call, in a way that a seed chooses; otherwise reads."""

    def __init__(self, seed: int, share: float) -> None:
        self.random, self.share = random.Random(seed), share
        self.faults = 0

    def __call__(self, handler: Handler) -> None:
        if self.random.random() < self.share:
            self.faults += 1
            self.random.choice(BAD)(handler)
        else:
            read_or_echo(handler)


@pytest.fixture
def url(engine: Engine, store: RunStore) -> Iterator[str]:
    """An endpoint that retries its own calls at once."""
    policy = RetryPolicy(attempts=3, max_wait=0, patience=0)
    model = open_model(f"vllm:{MODEL}", base_url=engine.url, api_key=SECRET, retry=policy)
    with listening_with(model, store, reading={"gate": "update"}, keys=(KEY,)) as url:
        yield url


def read_answer(response: httpx.Response, *, streams: bool) -> str:
    """What a response says; raises a ValueError or KeyError if it isn't a whole answer."""
    response.raise_for_status()
    if not streams:
        return response.json()["choices"][0]["message"]["content"]
    events = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        raise ValueError("a stream without its end")
    chunks = [json.loads(line) for line in events[:-1]]
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])


@pytest.mark.timeout(600)
async def test_a_fault_is_never_an_answer(engine: Engine, url: str) -> None:
    """Short and long requests at random; each is answered rightly, or with an error, and can be sent again."""
    engine.default = faulty = Faulty(1, 0.15)
    dice = random.Random(2)
    right = wrong = failed = 0
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(timeout=60, trust_env=False, headers=headers) as http:

        async def ask(seed: int) -> None:
            nonlocal right, wrong, failed
            body, expected = (long(seed), FACT) if dice.random() < 0.3 else (SHORT, "Hi")
            streams = dice.random() < 0.5
            while True:
                try:
                    there, given = f"{url}/chat/completions", body | {"stream": streams}
                    said = read_answer(await http.post(there, json=given), streams=streams)
                except (httpx.HTTPError, ValueError, KeyError):
                    failed += 1
                    continue
                right, wrong = right + (said == expected), wrong + (said != expected)
                return

        limit = asyncio.Semaphore(8)

        async def within(seed: int) -> None:
            async with limit:
                await ask(seed)

        while faulty.faults < FAULTS:
            await asyncio.gather(*(within(right + n) for n in range(20)))
    assert wrong == 0
    assert right > 0
    assert failed > 0
    print(f"{faulty.faults} faults, {right} right answers, {failed} errors, {wrong} wrong answers")


def test_short_requests_do_not_wait_for_an_engine_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, engine: Engine, store: RunStore, http: httpx.Client
) -> None:
    monkeypatch.setattr(engine_of_endpoint, "WINDOW_SECONDS", 0)
    engine.default = read_or_echo
    with listening(engine.url, store, reading={"gate": "update"}) as url:
        assert http.post(f"{url}/chat/completions", json=long(1)).status_code == 200
        engine.die()
        asked = engine.listings
        codes = [http.post(f"{url}/chat/completions", json=SHORT).status_code for _ in range(3)]
    assert codes == [502] * 3
    assert engine.listings - asked <= 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_reading_survives_the_endpoint(
    engine: Engine, start: Start, tmp_path: Path, number: int
) -> None:
    """Killed in the middle of a reading, or told to end: the next endpoint continues it."""

    def dawdle(handler: Handler) -> None:
        time.sleep(0.15)
        read_or_echo(handler)

    engine.default = dawdle
    headers = {"Authorization": f"Bearer {KEY}"}
    process, url = start("--grace", "0")
    with httpx.Client(timeout=30, trust_env=False, headers=headers) as http:
        body = long(1) | {"stream": True}
        said = ""
        with (
            suppress(httpx.HTTPError),
            http.stream("POST", f"{url}/chat/completions", json=body) as response,
        ):
            for text in response.iter_lines():
                assert "[DONE]" not in text
                if "chunk 3" in text:
                    said = ended(process, number)
        assert "Traceback" not in said
        with closing(RunStore(tmp_path / "runs.sqlite")) as store:
            (record,) = store.runs()
            done = store.count(record.id, "update/q0")
        assert done >= 2
        before = len(engine.bodies)
        process, url = start()
        reply = http.post(f"{url}/chat/completions", json=long(1)).json()
        assert reply["choices"][0]["message"]["content"] == FACT
        (found,) = reply["memagent"]["read"]
        assert found["run_id"] == record.id
        assert len(engine.bodies) - before == found["chunks"] - done + 1
    ended(process, signal.SIGTERM)


async def ask_and_end(engine: Engine, process: subprocess.Popen[str], url: str) -> httpx.Response:
    """Sends a request, and ends the endpoint while the engine is at work on it."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(timeout=30, trust_env=False, headers=headers) as http:
        asked = asyncio.create_task(http.post(f"{url}/chat/completions", json=SHORT))
        await asyncio.to_thread(engine.waiting.wait, 10)
        process.send_signal(signal.SIGTERM)
        return await asked


def test_short_requests_finish_before_it_ends(engine: Engine, start: Start) -> None:
    engine.default = slow(1)
    process, url = start()
    assert asyncio.run(ask_and_end(engine, process, url)).status_code == 200
    process.communicate(timeout=20)
    assert process.returncode == -signal.SIGTERM


def test_requests_that_do_not_finish_are_told_that_it_ends(engine: Engine, start: Start) -> None:
    engine.default = slow(8)
    process, url = start("--grace", "1")
    response = asyncio.run(ask_and_end(engine, process, url))
    assert response.status_code == 503
    assert "shutting down" in response.json()["error"]["message"]
    assert "without starting response" not in process.communicate(timeout=20)[0]


def test_secrets_are_nowhere(engine: Engine, start: Start, tmp_path: Path) -> None:
    """Neither key is in what the process says, what callers get, or the store; nor is one that a caller gets wrong."""

    def echo(handler: Handler) -> None:
        said = f"bad key {handler.headers['Authorization']}"
        (refuse(400, said) if len(engine.bodies) % 2 else refuse(401, said))(handler)

    wrong = "a-key-of-another-service-19c4"
    process, url = start("--retries", "0")
    answers: list[str] = []
    with httpx.Client(timeout=30, trust_env=False) as http:
        for behaviour in (read_or_echo, echo, echo):
            engine.default = behaviour
            for key in (KEY, wrong):
                for body in (SHORT, long(len(answers)), long(len(answers)) | {"stream": True}):
                    headers = {"Authorization": f"Bearer {key}"}
                    response = http.post(f"{url}/chat/completions", json=body, headers=headers)
                    answers += [response.text, str(response.headers)]
    said = ended(process, signal.SIGTERM)
    with closing(sqlite3.connect(tmp_path / "runs.sqlite")) as db:
        stored = "\n".join(db.iterdump())
    assert FACT in stored
    for secret in (SECRET, KEY, wrong):
        assert all(secret not in text for text in (said, stored, *answers))
    assert {header["authorization"] for header in engine.seen} == {f"Bearer {SECRET}"}


def measure(pid: int) -> tuple[int, int]:
    """Resident KiB and open descriptors of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]), len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.timeout(300 + 2 * LOAD_SECONDS)
def test_a_load_leaves_nothing_behind(engine: Engine, start: Start) -> None:
    """Short, long, streamed, dropped and wrong requests at once: memory and descriptors stay flat."""
    engine.default = read_or_echo
    process, url = start()
    headers = {"Authorization": f"Bearer {KEY}"}
    counts = {"answered": 0, "dropped": 0, "refused": 0}
    failures: list[str] = []

    def expect(status: int, outcome: str, response: httpx.Response) -> None:
        counts[outcome] += 1
        if response.status_code != status:
            failures.append(f"{response.status_code}: {response.text:.300}")

    async def one(http: httpx.AsyncClient, dice: random.Random) -> None:
        kind = dice.random()
        there = f"{url}/chat/completions"
        if kind < 0.5:
            expect(200, "answered", await http.post(there, json=SHORT))
        elif kind < 0.7:
            body = long(dice.randrange(20))
            expect(200, "answered", await http.post(there, json=body))
        elif kind < 0.85:
            async with http.stream(
                "POST", there, json=long(dice.randrange(10**6)) | {"stream": True}
            ) as r:
                async for line in r.aiter_lines():
                    if "chunk" in line:
                        break
            counts["dropped"] += 1
        else:
            expect(400, "refused", await http.post(there, content=b"{", headers=JSON))

    async def load(seconds: float) -> None:
        end = time.monotonic() + seconds
        async with httpx.AsyncClient(timeout=60, trust_env=False, headers=headers) as http:

            async def worker(number: int) -> None:
                dice = random.Random(number)
                while time.monotonic() < end:
                    await one(http, dice)

            await asyncio.gather(*map(worker, range(6)))

    asyncio.run(load(min(LOAD_SECONDS / 2, 60)))
    time.sleep(1)
    before, open_before = measure(process.pid)
    asyncio.run(load(LOAD_SECONDS))
    time.sleep(1)
    after, open_after = measure(process.pid)
    health = httpx.get(f"{root(url)}/health", trust_env=False)
    ended(process, signal.SIGTERM)
    print(f"{counts}, {before} to {after} KiB, {open_before} to {open_after} descriptors")
    assert health.status_code == 200
    assert failures[:3] == []
    assert all(counts.values())
    assert open_after <= open_before + 2
    assert after < before * 1.15 + 8192
