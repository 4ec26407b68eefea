"""`make bench-questions`: what a prefix cache saves when several questions are asked about one document.

Usage: python -m memagent_bench.server.questions --base-url URL --model NAME [--tokenizer DIR] [--rounds N]

It starts no server. Any will do that says how many prompt tokens it took from its cache: vLLM in its metrics, others
with each reply. It should be idle otherwise. The defaults are what `tests.engines.serve` sets.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import httpx

from memagent.memory.agent import MemoryAgent
from memagent.messages import ChatRequest, Completion, Sampling
from memagent.models.base import ChatModel, Wrapper
from memagent.models.openai import OpenAIModel
from memagent.tasks.origin import machine
from memagent.threads import in_thread
from memagent_bench.perf.chunks import book
from memagent_bench.perf.measure import Row, page_parser, publish
from memagent_bench.server.vllm import VLLM

COUNTS = (1, 4, 16)
"""Numbers of questions about one document."""
WINDOW, CHUNK, MEMORY, CHARS = 2048, 1024, 64, 6_000
"""Settings of a reading: two chunks of `smol`'s vocabulary. Each reading has its own text, which no cache knows yet."""
FULL = {"ignore_eos": True}
"""Makes vLLM give every reply its full length, so that all readings do the same work."""
METRICS = {"hits": "vllm:prefix_cache_hits_total", "queries": "vllm:prefix_cache_queries_total"}
NAMES = (
    *("Andrew", "Anna", "Boris", "Helene", "Hippolyte", "Julie", "Marya", "Mortemart"),
    *("Natasha", "Nicholas", "Pavlovna", "Petya", "Pierre", "Sonya", "Vasili", "Vera"),
)
WAITS = "chunk first, one question ahead"
ORDERS = {
    "question first": ("plain", False),
    "chunk first": ("shared", False),
    WAITS: ("shared", True),
}
"""Order of the prompt -> its prompt set, and whether one question's call ends before the others are sent."""


class OneAhead(Wrapper):
    """Holds back a chunk's calls until the first of them has its reply."""

    def __init__(self, inner: ChatModel) -> None:
        super().__init__(inner)
        self._first: dict[str, asyncio.Event] = {}

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on, at once if it is the chunk's first."""
        chunk = request.parts.get("chunk")
        if chunk is None:
            return await self.inner.complete(request)
        if (event := self._first.get(chunk)) is not None:
            await event.wait()
            return await self.inner.complete(request)
        self._first[chunk] = event = asyncio.Event()
        try:
            return await self.inner.complete(request)
        finally:
            event.set()


@dataclass
class Pass:
    """The measurements of one reading."""

    seconds: float
    cached: float
    """Prompt tokens that the server took from its prefix cache."""
    prompt: float
    """All prompt tokens."""


Counters = Callable[[], Mapping[str, float]]


async def read(
    model: ChatModel, counters: Counters, text: str, questions: Sequence[str], order: str
) -> Pass:
    """Makes one reading."""
    prompts, ahead = ORDERS[order]
    agent = MemoryAgent(
        OneAhead(model) if ahead else model,
        prompts=prompts,
        window=WINDOW,
        chunk_tokens=CHUNK,
        memory_tokens=MEMORY,
        sampling=Sampling(temperature=0.0),
        degenerate="take",  # a retry would add work
        store=None,
    )
    await agent.plan(tuple(questions))  # counter and window are requested only once
    before = counters()
    start = time.perf_counter()
    results = await agent.aask_many(text, questions)
    seconds = time.perf_counter() - start
    after = counters()
    hits, queries = (after[name] - before[name] for name in METRICS)
    if not queries:
        hits = sum(result.usage.cached_tokens for result in results)
        queries = sum(result.usage.prompt_tokens for result in results)
    return Pass(seconds, hits, queries)


async def measure(
    model: ChatModel, counters: Counters, counts: Sequence[int], rounds: int
) -> list[Row]:
    """Measures cached tokens and seconds for each number of questions and order.

    Args:
        model: the model that answers.
        counters: returns the server's numbers by the names of `METRICS`, 0 for missing ones.
        counts: numbers of questions.
        rounds: number of readings of each kind.
    """
    novel = await in_thread(book)
    texts = (novel[start : start + CHARS] for start in range(0, len(novel), CHARS))
    questions = [f"What is said about {name}?" for name in NAMES]
    # With one question, there is nothing to wait for.
    kinds = [(count, order) for count in counts for order in ORDERS if count > 1 or order != WAITS]
    passes: dict[tuple[int, str], list[Pass]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for count, order in kinds:
            result = await read(model, counters, next(texts), questions[:count], order)
            passes[count, order].append(result)
            print(f"{count} questions, {order}: {result}", flush=True)
    rows: list[Row] = []
    for (count, order), readings in passes.items():
        what = f"{count} question{'s' * (count > 1)}, {order}"
        prompt = sum(reading.prompt for reading in readings) / rounds
        cached = [reading.cached for reading in readings]
        rows += [
            Row(f"{what}: cached tokens", cached, f"of {prompt:,.0f}"),
            Row(f"{what}: wall time", [reading.seconds for reading in readings], "s"),
        ]
    return rows


async def run(given: argparse.Namespace, *, full: bool) -> list[Row]:
    """Measures one server."""
    url, body = given.base_url, FULL if full else None
    model = OpenAIModel(given.model, base_url=url, tokenizer=given.tokenizer, extra_body=body)
    try:
        counters = partial(VLLM(url).metrics, METRICS)
        return await measure(model, counters, given.counts, given.rounds)
    finally:
        await model.aclose()


def main() -> int:
    """Measures, prints the table, and writes it into a page if one is given."""
    parser = page_parser(__doc__)
    parser.add_argument("--base-url", default=os.environ.get("MEMAGENT_BASE_URL"))
    parser.add_argument("--model", default=os.environ.get("MEMAGENT_MODEL", "").partition(":")[2])
    parser.add_argument("--tokenizer", default=os.environ.get("MODEL_FOLDER"))
    numbers = range(1, len(NAMES) + 1)
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, choices=numbers)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    try:
        server = f"vLLM {VLLM(arguments.base_url).version()}"
    except (httpx.HTTPError, ValueError, KeyError):
        server = "another server"
    rows = asyncio.run(run(arguments, full=server.startswith("vLLM")))
    where = f"{machine()}, {server} on the same machine"
    return publish(rows, "make bench-questions", arguments.write, where)


if __name__ == "__main__":
    sys.exit(main())
