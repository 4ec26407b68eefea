"""memagent-bench against a real server: every system, a kill in the middle, and the page in the end."""

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.bench.systems.benches import PEERS
from tests.engines.servers import EngineServer

from memagent_bench.published import ONE_SHOT
from memagent_bench.records import read_records
from memagent_bench.systems.base import Status
from memagent_bench.systems.registry import SYSTEMS as EVERY

SYSTEMS = [name for name in EVERY if name not in {ONE_SHOT, *PEERS}]
"""A whole document, as RULER sends it, is over the window of these servers."""
TASKS = ("niah_single_2", "vt")
PREDICTED_EXACTLY = ("memory", "memory-gate", "direct", "bm25-model")


def command(engine: EngineServer, folder: Path, *options: str) -> tuple[list[str], dict[str, str]]:
    """`memagent-bench ruler` with all systems, and its environment."""
    line = [
        *(sys.executable, "-m", "memagent_bench", "ruler"),
        *("--model", f"{engine.engine}:{engine.model}", "--base-url", engine.url),
        *("--tasks", ",".join(TASKS), "--lengths", "4k", "-n", "2", "--seed", "7"),
        *("--systems", ",".join(SYSTEMS), "--out", str(folder), *options),
    ]
    return line, os.environ | {"MEMAGENT_API_KEY": engine.api_key or ""}


@pytest.mark.timeout(900)
async def test_all_systems_finish_in_spite_of_a_kill(engine: EngineServer, tmp_path: Path) -> None:
    """A random model says nothing right: what counts is that everything is there, once, and paid for as predicted."""
    folder = tmp_path / "run"
    results = folder / "results.jsonl"
    line, environment = command(engine, folder)

    def killed_and_repeated() -> subprocess.CompletedProcess[str]:
        first = subprocess.Popen(
            line, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not results.is_file() or results.read_text().count("\n") < 10:
            assert first.poll() is None, "it ended before it could be killed"
            time.sleep(0.05)
        first.kill()
        first.wait()
        return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)

    done = await asyncio.to_thread(killed_and_repeated)
    records = await asyncio.to_thread(read_records, folder)
    failed = [(record.system, record.detail) for record in records if record.score is None]
    assert failed == []
    assert done.returncode == 0, done.stderr[-2000:]
    assert {record.key for record in records} == {
        ("ruler", task, 4096, system, index)
        for task in TASKS
        for system in SYSTEMS
        for index in (0, 1)
    }
    for record in records:
        assert record.status is Status.ANSWERED
        assert record.tokens <= 4096
        usage = record.usage
        if usage.retries:
            continue
        if record.predicted_tokens is not None:
            assert usage.prompt_tokens + usage.completion_tokens <= record.predicted_tokens
        if record.system in PREDICTED_EXACTLY:
            assert usage.calls == record.predicted_calls
    server = records[0].provenance.server or ""
    assert engine.engine in server
    assert engine.url in server


@pytest.mark.timeout(300)
async def test_the_key_is_in_no_file_and_a_dead_server_ends_the_run(
    engine: EngineServer, tmp_path: Path
) -> None:
    """A wrong address ends the command with the model's exit code, and what was begun can be gone on with."""
    folder = tmp_path / "run"
    line, environment = command(engine, folder, "--tasks", "niah_single_1", "--systems", "memory")

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*line, *more], env=environment, capture_output=True, text=True, check=False
        )

    dead = await asyncio.to_thread(run, "--base-url", "http://127.0.0.1:9/v1")
    assert dead.returncode == 4, dead.stderr[-2000:]
    assert "127.0.0.1:9" in dead.stderr
    done = await asyncio.to_thread(run)
    assert done.returncode == 0, done.stderr[-2000:]
    written = await asyncio.to_thread(
        lambda: b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    )
    assert b"niah_single_1" in written
    assert (engine.api_key or "?").encode() not in written
    assert (engine.api_key or "?") not in done.stdout + done.stderr + dead.stdout + dead.stderr
