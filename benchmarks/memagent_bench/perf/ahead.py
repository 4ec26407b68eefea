"""`make bench-ahead`: how much sooner a reading ends that sends chunks ahead, and for how many more calls.

Usage: python -m memagent_bench.perf.ahead [--chunks N] [--rounds N] [--write docs/speedups.md]

The model takes the same time for each call and changes its memory at a given share of chunks, at random places: what is
measured is the method, and the cost of this client. With changes at rate p, rounds of B chunks advance by
(1 - (1 - p)^B) / p chunks.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import sys
import tempfile
import time
from collections.abc import Collection
from math import inf
from pathlib import Path
from typing import Literal

from memagent import ChatRequest, Completion, MemoryAgent, Result, RunStore, Sampling, Usage
from memagent.models.base import SimpleModel
from memagent_bench.perf.chunks import book
from memagent_bench.perf.loop import CHARS_PER_TOKEN, Quarter
from memagent_bench.perf.measure import Row, page_parser, publish

LATENCY = 0.05
"""Seconds per call: short for a model, long beside this client's own work."""
SLOTS = 16
CHUNK = 256
RATES = (0.01, 0.05, 0.1, 0.3)


class Slow(SimpleModel):
    """A model with 16 slots and fixed latency, which changes its memory at given chunks.

    Args:
        changes: the numbers of these chunks, from 0.
        latency: seconds of a call.
    """

    name = "slow"

    def __init__(self, changes: Collection[int], latency: float = LATENCY) -> None:
        super().__init__(Quarter(), 2048)  # room for a chunk
        self._changes, self._latency = changes, latency
        self._numbers: dict[str, int] = {}
        self._slots = asyncio.Semaphore(SLOTS)

    async def complete(self, request: ChatRequest) -> Completion:
        """Returns a reply that depends on everything in the prompt."""
        prompt = "".join(message.content for message in request.messages)
        # Chunks, which are all different, are first sent in the order of the text.
        chunk = request.parts.get("chunk", "")
        number = self._numbers.setdefault(chunk, len(self._numbers))
        async with self._slots:
            await asyncio.sleep(self._latency)
        keeps = request.kind == "update" and number not in self._changes
        text = "[keep]" if keeps else f"Noted {digest(prompt)}."
        usage = Usage(calls=1, prompt_tokens=request.prompt_tokens or 1, completion_tokens=8)
        return Completion(text=text, usage=usage)


def digest(text: str) -> str:
    """Returns a digest of 16 hexadecimal digits."""
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


async def read(text: str, model: Slow, ahead: int | Literal["auto"]) -> tuple[float, Result]:
    """Returns the seconds of a reading, and its result."""
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder) / "runs.sqlite")
        agent = MemoryAgent(
            model,
            store=store,
            chunk_tokens=CHUNK,
            gate="update",
            sampling=Sampling(temperature=0),
            read_ahead=ahead,
        )
        start = time.perf_counter()
        result = await agent.aask(text, "When did Natasha marry?")
        seconds = time.perf_counter() - start
        store.close()
        return seconds, result


def expect(rate: float, size: int) -> float:
    """Returns the expected number of chunks by which a round of `size` advances."""
    return (1 - (1 - rate) ** size) / rate


def measure(chunks: int, rounds: int) -> list[Row]:
    """Measures chunks per round against theory, and time and calls against reading in order; changes differ by round.

    Raises:
        RuntimeError: a reading ended with another memory or answer than in order.
    """
    text = book(chunks * CHUNK * CHARS_PER_TOKEN)
    rows: list[Row] = []
    count = asyncio.run(read(text, Slow((), latency=0), 1))[1].chunks
    for rate in RATES:
        advance, faster, calls = ({16: list[float](), "auto": list[float]()} for _ in range(3))
        for seed in range(rounds):
            changes = frozenset(random.Random(seed).sample(range(count), round(rate * count)))
            alone, inorder = asyncio.run(read(text, Slow(changes), 1))
            for ahead in (16, "auto"):
                seconds, result = asyncio.run(read(text, Slow(changes), ahead))
                if (result.memory, result.answer) != (inorder.memory, inorder.answer):
                    raise RuntimeError(f"another result at rate {rate}, seed {seed}, {ahead!r}")
                sent = result.chunks + result.usage.discarded
                # A round sends 16 calls, except at the end of the document.
                drawn = len(changes) / count
                advance[ahead].append(result.chunks / sent * SLOTS / expect(drawn, SLOTS))
                faster[ahead].append(alone / seconds)
                calls[ahead].append(sent / result.chunks)
        at = f"changes in {rate:.0%} of chunks"
        what = f"{at}, 16 ahead: chunks a round against theory"
        rows.append(Row(what, advance[16], least=0.95, most=1.05))
        for ahead in (16, "auto"):
            target = rate == 0.05 and ahead == 16
            name = f"{at}, {ahead} ahead"
            least, most = (6, 1.45) if target else (-inf, inf)
            rows.append(Row(f"{name}: times as fast", faster[ahead], least=least))
            rows.append(Row(f"{name}: calls a chunk", calls[ahead], most=most))
    return rows


def main() -> int:
    """Measures, prints, and fails if a target is missed."""
    parser = page_parser(__doc__)
    parser.add_argument("--chunks", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    return publish(measure(arguments.chunks, arguments.rounds), "make bench-ahead", arguments.write)


if __name__ == "__main__":
    sys.exit(main())
