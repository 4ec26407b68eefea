"""How much code a run executes: frames at the model call, and distinct functions of memagent.

    python -m memagent_bench.perf.path

Two chunks and an answer are read from a temporary store with a scripted model.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from types import FrameType
from typing import Any

from memagent import ChatRequest, Completion, MemoryAgent, ScriptedModel

MOST_FRAMES = 9
MOST_FUNCTIONS = 149
PACKAGE = "memagent/"


class Path:
    """Counts functions called, in all threads."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()
        self.frames = 0

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """A profile function."""
        if event == "call" and (name := _locate(frame)) is not None:
            self.functions.add(name)


class Probe(ScriptedModel):
    """Counts the frames of memagent between the caller and the model.

    Args:
        path: receives the count.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(lambda request: f"{request.kind}: nothing new.", window=2048)
        self._path = path

    async def complete(self, request: ChatRequest) -> Completion:
        """Counts the frames, and replies."""
        frame, frames = sys._getframe(1), 0  # pyright: ignore[reportPrivateUsage]
        while frame is not None:
            frames += _locate(frame) is not None
            frame = frame.f_back
        self._path.frames = max(self._path.frames, frames)
        return await super().complete(request)


def _locate(frame: FrameType) -> tuple[str, str] | None:
    """Returns file and name of a function of the runtime; None for others."""
    _, separator, file = frame.f_code.co_filename.rpartition(f"src/{PACKAGE}")
    return (file, frame.f_code.co_qualname) if separator else None


def trace() -> Path:
    """Reads two chunks and answers, while counting."""
    path = Path()
    text = "A line of the book that says little. " * 40
    with MemoryAgent(Probe(path), store=None, chunk_tokens=900) as agent:
        threading.setprofile(path.note)
        sys.setprofile(path.note)
        try:
            calls = asyncio.run(_read(agent, text))
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    assert calls == 3, calls
    return path


async def _read(agent: MemoryAgent, text: str) -> int:
    return (await agent.aask(text, "What does it say?")).usage.calls


def main() -> int:
    """Prints both numbers; returns 1 if one exceeds its limit."""
    path = trace()
    print(f"{path.frames} frames at the model call (at most {MOST_FRAMES})")
    print(f"{len(path.functions)} distinct functions (at most {MOST_FUNCTIONS})")
    return int(path.frames > MOST_FRAMES or len(path.functions) > MOST_FUNCTIONS)


if __name__ == "__main__":
    raise SystemExit(main())
