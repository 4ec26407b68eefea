"""Two real servers behind one model; one of them dies and comes back."""

import asyncio
from pathlib import Path

import pytest
from tests.engines.servers import EngineServer

from memagent import MemoryAgent, open_model
from memagent.messages import ChatRequest, Message, Sampling
from memagent.models.openai import OpenAIModel

QUESTION = "Where was he in 1812?"
TEXT = "\n\n".join(
    f"In the year {1800 + i} the old prince rode to village number {i} and spoke to nobody there, "
    f"though Natásha had written to him {i} times about the sale of the forest."
    for i in range(60)
)


@pytest.mark.timeout(900)
async def test_a_dead_server_is_left_out_and_comes_back(
    engine: EngineServer, second_engine: EngineServer, tmp_path: Path
) -> None:
    urls = [engine.url, second_engine.url]
    model = open_model(f"{engine.engine}:{engine.model}", base_url=urls, api_key=engine.api_key)
    agent = MemoryAgent(
        model,
        window=1024,
        degenerate="take",
        store=tmp_path / "runs.sqlite",
    )

    async def read(count: int, name: str) -> None:
        results = await asyncio.gather(
            *(agent.aask(f"Paper {i}. {TEXT}", QUESTION, run_id=f"{name}{i}") for i in range(count))
        )
        assert all(result.answer for result in results), [result.detail for result in results]

    before = [engine.requests(), second_engine.requests()]
    await read(8, "both")
    shares = [engine.requests() - before[0], second_engine.requests() - before[1]]
    assert min(shares) > 0.3 * sum(shares), shares

    reading = asyncio.create_task(read(8, "one"))
    await asyncio.sleep(1.0)
    second_engine.kill()
    await reading  # the other one takes over: all are answered
    alone = engine.requests()
    await read(4, "alone")
    assert engine.requests() > alone

    await asyncio.to_thread(second_engine.start)
    back = second_engine.requests()
    for round_ in range(40):
        await read(4, f"again{round_}-")
        if second_engine.requests() > back:
            break
    assert second_engine.requests() > back
    await agent.aclose()


async def test_a_conversation_stays_where_its_prefix_is(
    engine: EngineServer, second_engine: EngineServer
) -> None:
    model = OpenAIModel(
        engine.model, base_url=[engine.url, second_engine.url], api_key=engine.api_key
    )

    async def talk(opening: str) -> int:
        """Prompt tokens that came from the prefix cache."""
        messages = [Message(role="user", content=opening)]
        cached = 0
        for _ in range(4):
            reply = await model.complete(
                ChatRequest(
                    messages=tuple(messages), max_tokens=8, sampling=Sampling(temperature=0)
                )
            )
            cached += reply.usage.cached_tokens
            messages += [
                Message(role="assistant", content=reply.text),
                Message(role="user", content="Go on, please."),
            ]
        return cached

    openings = [f"Conversation {i}. {TEXT[:2400]}" for i in range(6)]
    cached = await asyncio.gather(*(talk(opening) for opening in openings))
    # Three of four turns find their beginning; blocks that are not full are not cached.
    prompt = await asyncio.to_thread(
        (await model.counter()).count_messages, (Message(role="user", content=openings[0]),)
    )
    assert min(cached) >= 3 * (prompt - 150), (cached, prompt)
    await model.aclose()
