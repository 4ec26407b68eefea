"""Events: each step as it happens, here for your own progress display.

    python examples/02_events.py

The model is `MEMAGENT_MODEL`, else the stand-in `extractive`.
"""

import asyncio
import os
from pathlib import Path

from memagent import MemoryAgent
from memagent.events import Answered, ChunkRead, MemoryKept, MemoryUpdated, Retried, Stopped

BOOK = Path(__file__).with_name("epilogue.txt")


async def main() -> None:
    length = len(BOOK.read_text("utf-8"))
    agent = MemoryAgent(os.environ.get("MEMAGENT_MODEL", "extractive"), gate="update")
    async with agent.stream(BOOK, "When did Nicholas marry Princess Mary?") as run:
        async for event in run:
            match event:
                case ChunkRead():
                    print(f"{event.end / length:4.0%} ", end="")
                case MemoryUpdated():
                    print(f"memory now {event.tokens} tokens: {event.memory[:60]!r}...")
                case MemoryKept():
                    print("nothing new")
                case Retried():
                    print(f"sent again: {event.reason}")
                case Answered():
                    print(f"answer: {event.answer}")
                case Stopped():
                    print(f"stopped: {event.detail}")
                case _:  # RunStarted and others
                    pass
    print(f"{run.result.usage.calls} calls")
    await agent.aclose()


asyncio.run(main())
