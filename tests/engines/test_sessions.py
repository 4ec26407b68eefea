"""`memagent-bench sessions` on a real server: prompts cost what the server says, and none is over a window."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engines.fixtures import API_KEY, StartServer
from tests.engines.servers import EngineServer

from memagent_bench.sessions.record import Reason, read_sessions
from memagent_bench.systems.base import Status

WINDOW, SIZE = 4096, 3072
"""Of the server and of the working context: the prompts alone take some 1,500 of the tiny model's tokens."""


@pytest.fixture(scope="module")
def roomy(start_server: StartServer) -> EngineServer:
    return start_server(window=WINDOW, api_key=API_KEY)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("protocol", ["native", "text"])
async def test_the_expert_plays_and_the_server_is_paid(
    roomy: EngineServer, tmp_path: Path, protocol: str
) -> None:
    line = [
        *(sys.executable, "-m", "memagent_bench", "sessions"),
        *("--model", f"{roomy.engine}:{roomy.model}", "--base-url", roomy.url),
        *("--games", "heaviest", "--difficulty", "60", "--summaries", "100"),
        *("--systems", "full,drop-oldest,summary", "--working-context", str(SIZE)),
        *("--protocol", protocol, "--out", str(tmp_path)),
    ]
    environment = os.environ | {"MEMAGENT_API_KEY": roomy.api_key or ""}
    done = await asyncio.to_thread(
        subprocess.run, line, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    records = await asyncio.to_thread(read_sessions, tmp_path)
    assert {record.arm.system for record in records} == {"full", "drop-oldest", "summary"}
    for record in records:
        assert record.status is not Status.FAILED, record.detail
        assert record.usage.retries == 0
        assert roomy.url in (record.origin.server or "")
        assert 0 < record.largest_prompt <= (record.arm.working_context or WINDOW), record.arm.label
        if record.arm.system == "summary":
            assert record.score == 1, record.detail
            assert record.summaries > 0
            assert record.usage.calls > 60
        elif record.arm.system == "full":
            # What does not fit is not sent, and not scored either.
            assert (record.reason, record.score) == (Reason.OVERFLOW, None)
