"""The client side of promise 5: what a run costs on a real server against what was estimated."""

import asyncio
import gzip
from pathlib import Path

import pytest
from tests.engines.servers import EngineServer

from memagent import MemoryAgent
from memagent.models.openai import OpenAIModel

BOOK = Path(__file__).parents[2] / "src/memagent/samples/war_and_peace.txt.gz"
QUESTION = "Whom does Natasha marry?"


@pytest.mark.timeout(900)
async def test_twenty_documents_cost_what_was_estimated(engine: EngineServer) -> None:
    """Replies of full length: then the bounds are to be within 10% of what was used."""
    model = OpenAIModel(
        engine.model,
        base_url=engine.url,
        api_key=engine.api_key,
        extra_body={"ignore_eos": True},
    )
    agent = MemoryAgent(model, store=None, degenerate="take")
    text = await asyncio.to_thread(lambda: gzip.decompress(BOOK.read_bytes()).decode())

    async def check(place: int) -> None:
        start = 40_000 * place
        document = text[start : start + 12_000 + 900 * place]
        planned = await agent.aestimate(document, QUESTION)
        result = await agent.aask(document, QUESTION)
        usage = result.usage
        assert result.stop_reason == "answered"
        assert usage.retries == 0
        assert usage.calls == planned.calls_min == planned.calls_max
        assert usage.prompt_tokens <= planned.prompt_tokens <= 1.10 * usage.prompt_tokens
        assert usage.completion_tokens <= planned.completion_tokens
        assert planned.completion_tokens <= 1.10 * usage.completion_tokens

    await asyncio.gather(*map(check, range(20)))
    await agent.aclose()
