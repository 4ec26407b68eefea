"""One measured pass in its own process, printed as a JSON object.

Usage: python -m memagent_bench.server.client agent|flat|alone BASE_URL MODEL LOG [TOKENIZER]
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memagent.memory.agent import MemoryAgent
from memagent.messages import ChatRequest, Completion, Usage
from memagent.models.base import ChatModel, Wrapper
from memagent.models.openai import OpenAIModel
from memagent_bench.perf.chunks import book
from memagent_bench.perf.measure import measure_resident

AT_ONCE = 64
QUESTION = "Whom does Natasha marry?"
WINDOW = 2048
"""Window of the 64 runs: the published proportions at a quarter of the published size."""
CHARS = 8_000
"""Characters of each document: about 2,500 tokens of the test vocabulary, 3 or 4 calls."""
ALONE_CHARS = 60_000
FULL = {"ignore_eos": True}
"""Makes every reply full length, so that both sides do the same work."""


class Log(Wrapper):
    """Records requests, to be sent again without an agent."""

    def __init__(self, inner: ChatModel, path: Path) -> None:
        super().__init__(inner)
        self._file = path.open("w", encoding="utf-8")

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on."""
        self._file.write(request.model_dump_json(exclude={"parts", "pattern"}) + "\n")
        self._file.flush()
        return await self.inner.complete(request)


async def agent(base_url: str, model: str, log: Path, tokenizer: str | None) -> dict[str, Any]:
    """Reads 64 documents at once with the agent."""
    served = OpenAIModel(model, base_url=base_url, tokenizer=tokenizer, extra_body=FULL)
    text = book()
    documents = [text[CHARS * i : CHARS * (i + 1)] for i in range(AT_ONCE)]
    return await _read(Log(served, log), documents, WINDOW, log)


async def read_alone(base_url: str, model: str, log: Path, tokenizer: str | None) -> dict[str, Any]:
    """Reads one document by itself, with the published window of 8192."""
    served = OpenAIModel(model, base_url=base_url, tokenizer=tokenizer, extra_body=FULL)
    return await _read(served, [book()[:ALONE_CHARS]], 8192, log)


async def _read(
    model: ChatModel, documents: Sequence[str], window: int, log: Path
) -> dict[str, Any]:
    store = log.with_suffix(".sqlite")
    store.unlink(missing_ok=True)
    reader = MemoryAgent(model, window=window, concurrency=AT_ONCE, store=store)
    await reader.plan((QUESTION,))  # counter and window are requested only once
    start = time.perf_counter()
    results = await asyncio.gather(*(reader.aask(document, QUESTION) for document in documents))
    seconds = time.perf_counter() - start
    await reader.aclose()
    usage = sum((result.usage for result in results), Usage())
    return _count(seconds, usage.calls, usage.prompt_tokens + usage.completion_tokens)


def _count(seconds: float, calls: int, tokens: int) -> dict[str, Any]:
    return {"seconds": seconds, "calls": calls, "tokens": tokens, "peak": measure_resident()}


async def send_flat(base_url: str, model: str, log: Path, tokenizer: str | None) -> dict[str, Any]:
    """Sends the same requests with the bare client, 64 at once."""
    from openai import AsyncOpenAI

    lines = await asyncio.to_thread(log.read_text, encoding="utf-8")
    waiting = [json.loads(line) for line in reversed(lines.splitlines())]
    calls = tokens = 0

    async def worker(client: AsyncOpenAI) -> None:
        nonlocal calls, tokens
        while waiting:
            ask = waiting.pop()
            create: Any = client.chat.completions.create
            reply = await create(
                model=model,
                messages=ask["messages"],
                seed=ask["seed"],
                **ask["sampling"],
                extra_body={"max_tokens": ask["max_tokens"], **FULL},
            )
            calls += 1
            tokens += int(reply.usage.total_tokens)

    async with AsyncOpenAI(base_url=base_url, api_key="EMPTY", max_retries=0) as client:
        await client.models.list()
        start = time.perf_counter()
        await asyncio.gather(*(worker(client) for _ in range(AT_ONCE)))
        seconds = time.perf_counter() - start
    return _count(seconds, calls, tokens)


PASSES = {"agent": agent, "flat": send_flat, "alone": read_alone}

if __name__ == "__main__":
    kind, url, name, path, *rest = sys.argv[1:]
    print(json.dumps(asyncio.run(PASSES[kind](url, name, Path(path), rest[0] if rest else None))))
