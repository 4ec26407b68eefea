import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from memagent import MemoryAgent, ScriptedModel
from memagent.errors import ConfigError, EmptyDocument

TEXT = "The prince left for Moscow. " * 200


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[MemoryAgent]:
    model = ScriptedModel(lambda request: f"{request.kind}.", window=2048)
    agent = MemoryAgent(model, store=tmp_path / "runs.sqlite")
    yield agent
    agent.close()


async def test_leaving_a_stream_lets_go_of_the_run(agent: MemoryAgent) -> None:
    async with agent.stream(TEXT, "Who?", run_id="r1") as stream:
        async for event in stream:
            if event.type == "memory_updated":
                break
        with pytest.raises(ConfigError, match="not through"):
            _ = stream.result
    assert (await agent.aask(TEXT, "Who?", run_id="r1")).answer == "answer."


async def test_a_stream_that_nobody_reads_makes_no_run(agent: MemoryAgent) -> None:
    stream = agent.stream(TEXT, "Who?")
    await stream.aclose()
    store = await asyncio.to_thread(lambda: agent.store)
    assert await asyncio.to_thread(store.runs) == []


async def test_a_finished_stream_has_its_results(agent: MemoryAgent) -> None:
    stream = agent.stream(TEXT, ["Who?", "Why?"], run_id="r1")
    kinds = [event.type async for event in stream]
    assert kinds.count("answered") == 2
    assert [result.question for result in stream.results] == ["Who?", "Why?"]
    assert stream.result is stream.results[0]
    assert stream.run_id == "r1"


def test_a_run_id_that_is_no_file_name_is_refused_at_once(agent: MemoryAgent) -> None:
    with pytest.raises(ConfigError, match=r"'\.\./x'"):
        agent.stream(TEXT, "Who?", run_id="../x")


BREAK = """
import asyncio, sys
from memagent import MemoryAgent, ScriptedModel

agent = MemoryAgent(ScriptedModel(lambda request: "noted.", window=2048), store=sys.argv[1])

async def main():
    async for event in agent.stream("The prince left. " * 500, "Who?", run_id="r1"):
        if event.type == "memory_updated":
            break

asyncio.run(main())
print(agent.store.get("r1").status, agent.ask("The prince left. " * 500, "Who?", run_id="r1").answer)
agent.close()
"""


def test_breaking_out_of_a_stream_ends_quietly(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BREAK, str(tmp_path / "runs.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("stopped noted.\n", "")


async def test_an_error_ends_the_stream_and_is_raised(agent: MemoryAgent) -> None:
    stream = agent.stream("   ", "Who?")
    with pytest.raises(EmptyDocument):
        await stream.finish()
    stream = agent.stream("   ", "Who?")
    with pytest.raises(EmptyDocument):
        [event async for event in stream]


async def test_cancelling_the_consumer_stops_the_run(agent: MemoryAgent) -> None:
    stream = agent.stream(TEXT, "Who?", run_id="r1")
    assert (await anext(stream)).type == "run_started"

    async def rest() -> None:
        async for _ in stream:
            await asyncio.sleep(0.01)

    task = asyncio.create_task(rest())
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await stream.aclose()
    assert (await agent.aask(TEXT, "Who?", run_id="r1")).answer == "answer."
