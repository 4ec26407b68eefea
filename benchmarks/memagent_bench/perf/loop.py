"""The agent's own work per chunk, with a model that answers at once and a free counter."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from memagent import ChatRequest, Completion, MemoryAgent, RunStore, Usage
from memagent.messages import Message
from memagent.models.base import SimpleModel
from memagent_bench.perf.chunks import book
from memagent_bench.perf.measure import Row

CHARS_PER_TOKEN = 4
"""Characters per token of English prose; the counter below divides by it instead of tokenising."""


class Quarter:
    """A free counter: a token is four characters."""

    name = "chars/4"
    control_tokens: frozenset[str] = frozenset()

    def count(self, text: str) -> int:
        """Returns characters over four, rounded up."""
        return -(-len(text) // CHARS_PER_TOKEN)

    def count_messages(
        self, messages: Sequence[Message], *, thinking: bool | None = None, tools: object = ()
    ) -> int:
        """Counts as `count`, plus 8 tokens per message."""
        return sum(self.count(message.content) + 8 for message in messages)

    def measure(self, text: str) -> QuarterText:
        """Returns the text with its counts."""
        return QuarterText(text)


class QuarterText:
    """A text counted by `Quarter`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = -(-len(text) // CHARS_PER_TOKEN)

    def chars_within(self, limit: int) -> int:
        """Returns the characters within the limit, four per token."""
        return min(len(self.text), limit * CHARS_PER_TOKEN)

    def tokens_of_prefix(self, chars: int) -> int:
        """Counts the prefix as `count` does."""
        return -(-min(chars, len(self.text)) // CHARS_PER_TOKEN)


class Instant(SimpleModel):
    """A model that answers at once with a memory of typical length."""

    name = "instant"
    memory = " ".join(
        f"In chapter {chapter} the prince spoke of the war and left for Moscow."
        for chapter in range(1, 41)
    )

    def __init__(self) -> None:
        super().__init__(Quarter(), 8192)  # the published window

    async def complete(self, request: ChatRequest) -> Completion:
        """Returns the same memory each time."""
        usage = Usage(calls=1, prompt_tokens=request.prompt_tokens or 1, completion_tokens=600)
        return Completion(text=self.memory, usage=usage)


async def per_chunk(store: RunStore, text: str) -> float:
    """Measures milliseconds per chunk, from the first chunk's event to the last memory's.

    Raises:
        RuntimeError: a reply was refused, so that a chunk took more than one call.
    """
    agent = MemoryAgent(Instant(), store=store)
    first = last = 0.0
    chunks = 0
    async for event in agent.stream(text, "When did Natasha marry?"):
        if event.type == "chunk_read":
            chunks += 1
            first = first or time.perf_counter()
        elif event.type == "memory_updated":
            last = time.perf_counter()
        elif event.type == "retried":
            raise RuntimeError(f"the benchmark's own memory was refused: {event}")
    return (last - first) / chunks * 1000


def measure(repeats: int = 5) -> list[Row]:
    """Measures the agent's own work per chunk at four lengths, including commits to a real file."""
    values: dict[int, list[float]] = {8_000: [], 64_000: [], 512_000: [], 4_000_000: []}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(repeats):
            for tokens, times in values.items():
                text = book(tokens * CHARS_PER_TOKEN)
                store = RunStore(Path(folder) / f"{turn}-{tokens}.sqlite")
                again = max(
                    1, 64_000 // tokens
                )  # repeats short documents, since the clock is too coarse for one
                times.append(sum(asyncio.run(per_chunk(store, text)) for _ in range(again)) / again)
                store.close()
    return [
        Row(
            f"own work a chunk of 5000 tokens, document of {tokens:,} tokens", times, "ms", most=1.5
        )
        for tokens, times in values.items()
    ]
