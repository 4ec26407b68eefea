"""`make bench-ahead-server`: reading ahead on a real server, and how often replies change when sent together.

Usage: python -m memagent_bench.server.ahead [--chunks N] [--rounds N] [--write PAGE]

The server is described by the variables that `tests.engines.serve` sets, and serves `smol`. A greedy reply may depend
on the other requests in its batch, because kernels then add numbers in another order. Reading ahead brings exactly
what reading in order would have brought only where it doesn't.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence

from memagent import ChatRequest, Completion, MemoryAgent, Result, Sampling, open_model
from memagent.models.base import ChatModel, Wrapper
from memagent.tasks.origin import machine
from memagent_bench.perf.chunks import book
from memagent_bench.perf.measure import Row, page_parser, publish
from memagent_bench.server.vllm import VLLM

AT_ONCE = 8
CHARS_PER_CHUNK = 1200
"""Characters per chunk: about 300 tokens of English."""
QUESTION = "Who is Natasha to marry?"


class Recorder(Wrapper):
    """Records the requests and the texts of their replies."""

    def __init__(self, inner: ChatModel) -> None:
        super().__init__(inner)
        self.requests: list[ChatRequest] = []
        self.texts: list[str] = []

    async def complete(self, request: ChatRequest) -> Completion:
        """Passes the request on."""
        completion = await super().complete(request)
        self.requests.append(request)
        self.texts.append(completion.text)
        return completion


async def send(model: ChatModel, requests: Sequence[ChatRequest], at_once: int) -> list[str]:
    """Sends requests in groups; returns the texts of the replies."""
    texts: list[str] = []
    for first in range(0, len(requests), at_once):
        group = requests[first : first + at_once]
        texts += [
            completion.text for completion in await asyncio.gather(*map(model.complete, group))
        ]
    return texts


async def read(model: ChatModel, text: str, ahead: int) -> tuple[float, Result]:
    """Returns the seconds of a reading, and its result."""
    agent = MemoryAgent(
        model,
        prompts="small",
        gate="update",
        degenerate="take",
        sampling=Sampling(temperature=0),
        read_ahead=ahead,
        store=None,
        window=1024,
        chunk_tokens=384,
        memory_tokens=64,
    )
    start = time.perf_counter()
    result = await agent.aask(text, QUESTION)
    return time.perf_counter() - start, result


async def measure(spec: str, server: VLLM, chunks: int, rounds: int) -> list[Row]:
    """Measures all rows. Each pass begins with an empty prefix cache; each round reads another part of the book."""
    alone, together, faster, calls, same = (list[float]() for _ in range(5))
    model = open_model(spec)
    novel, size = book(), chunks * CHARS_PER_CHUNK
    for turn in range(rounds):
        text = novel[turn * size : (turn + 1) * size]
        server.reset()
        recorder = Recorder(model)
        seconds, inorder = await read(recorder, text, 1)
        n = len(recorder.requests)
        for at_once, shares in ((1, alone), (AT_ONCE, together)):
            server.reset()
            texts = await send(model, recorder.requests, at_once)
            shares.append(sum(map(str.__ne__, texts, recorder.texts)) / n)
        server.reset()
        sooner, result = await read(model, text, AT_ONCE)
        faster.append(seconds / sooner)
        spent = result.usage
        calls.append((spent.calls + spent.retries + spent.discarded) / n)
        same.append(float((result.memory, result.answer) == (inorder.memory, inorder.answer)))
    await model.aclose()
    return [
        Row("replies that differ, sent one at a time again", alone, "of all"),
        Row(f"replies that differ, {AT_ONCE} sent at once", together, "of all"),
        Row(f"{AT_ONCE} ahead: times as fast", faster),
        Row(f"{AT_ONCE} ahead: calls against reading in order", calls),
        Row(f"{AT_ONCE} ahead: the same memory and answer", same, "of readings"),
    ]


def main() -> int:
    """Measures, prints the table, and writes it into a page if one is given."""
    parser = page_parser(__doc__)
    parser.add_argument("--chunks", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    server = VLLM(os.environ["MEMAGENT_BASE_URL"])
    where = f"{machine()}, vLLM {server.version()} on the same machine, `smol`"
    rows = asyncio.run(
        measure(os.environ["MEMAGENT_MODEL"], server, arguments.chunks, arguments.rounds)
    )
    return publish(rows, "make bench-ahead-server", arguments.write, where)


if __name__ == "__main__":
    sys.exit(main())
