"""The demo of a trained policy: a fact hidden in a long text, and the memory that has to carry it to the end."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, dataclass

from memagent.cli.exits import NO_ANSWER, WRONG, Outcome
from memagent.cli.needle import BOOK_TOKENS, Length, Needle, hide
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.cli.results import as_json, report
from memagent.cli.session import drive
from memagent.cli.watch import Watcher, watch, watcher
from memagent.events import ChunkRead, Event, MemoryUpdated
from memagent.terminal import amount, duration, plural, shorten

NAME = "War and Peace, with a needle"
GIST = 70
"""Characters printed of a memory."""


@dataclass(frozen=True)
class Point:
    """A memory, and where it was written."""

    read: float
    """Share of the document, 0 to 1."""
    chunk: int
    needle: bool
    """Whether the needle had just been read."""
    memory: str

    def line(self) -> str:
        """The point on one line."""
        memory = shorten(self.memory, GIST) or "(empty)"
        return f"{self.read:>4.0%}  {'needle read: ' if self.needle else ''}{memory}"


class Trail:
    """The memory at ten points of a document of `chars` characters, and behind its needle, which ends at `needle`."""

    def __init__(self, *, chars: int, needle: int) -> None:
        self._chars, self._needle = chars, needle
        tenths = [chars * tenth // 10 for tenth in range(1, 10)]
        self._marks = sorted({chars // 100, *tenths, needle})
        self._chunk: ChunkRead | None = None

    def add(self, event: Event) -> Point | None:
        """The point, if the event is the first memory behind a mark."""
        if isinstance(event, ChunkRead):
            self._chunk = event
        chunk = self._chunk
        if not isinstance(event, MemoryUpdated) or chunk is None:
            return None
        passed = [mark for mark in self._marks if mark <= chunk.end]
        if not passed and not chunk.last:
            return None
        self._marks = self._marks[len(passed) :]
        share = 1.0 if chunk.last else round(chunk.end / self._chars, 4)
        return Point(share, event.chunk, self._needle in passed, event.memory)


class TrailWatcher(Watcher):
    """Prints each point at once, with the speed and the time left."""

    def __init__(self, tally: Tally, trail: Trail) -> None:
        super().__init__(tally)
        self._trail = trail

    def event(self, event: Event) -> None:
        """Counts, and prints a point."""
        super().event(event)
        if (point := self._trail.add(event)) is not None:
            left = self.tally.left
            pace = f"  [{amount(self.tally.speed)} tokens/s, {duration(left)} left]" if left else ""
            print(f"{point.line()}{pace}", flush=True)


def find_needle(model: str, length: Length, seed: int, outcome: Outcome) -> int:
    """Hides a needle, lets the model look for it with the gate off, and says how that went.

    Returns:
        The exit code: 0 for the right answer, `WRONG` for another, 6 for none.

    Raises:
        MemagentError: the reading ended early.
    """
    from memagent.documents import open_document
    from memagent.memory.agent import MemoryAgent
    from memagent.runstore import RunStore

    display, paper = outcome.display, outcome.paper
    with closing(RunStore(None)) as store:
        # The gate is off, so that nothing but the policy itself carries the memory on.
        agent = MemoryAgent(model, gate="off", seed=seed, store=store)
        with closing(agent):
            needle = hide(length, seed)
            document = open_document(needle.text, name=NAME)
            estimate = drive(agent.aestimate(document, needle.question))
            if outcome.for_people:
                paper.line(
                    (_introduction(needle, length, agent.model.name, estimate.chunks), "dim")
                )
            begun = time.monotonic()
            tally = Tally(chars=len(needle.text))
            marks = {"chars": len(needle.text), "needle": needle.end}
            stream = agent.stream(document, needle.question)
            prints = display is Display.PLAIN
            follows = TrailWatcher(tally, Trail(**marks)) if prints else watcher(display, tally)
            watch(agent, stream, follows)
            seconds = time.monotonic() - begun
        record, trail = store.get(stream.run_id), Trail(**marks)
        points = [point for event in store.events(record.id) if (point := trail.add(event))]
        usage, answer = store.usage(record.id), tally.notebooks[0].answer
        speed = (usage.prompt_tokens + usage.completion_tokens) / seconds if seconds > 0 else 0.0
        right = needle.is_right(answer)
        if display is Display.JSON:
            found = {
                "fact": needle.fact,
                "place": needle.place,
                "characters": len(needle.text),
                "right": right,
                "seconds": round(seconds, 3),
                "tokens_per_second": round(speed, 1),
                "memories": [asdict(point) for point in points],
            }
            outcome.tell(as_json(store, record, tally) | found)
            code = 0 if answer is not None else NO_ANSWER
        else:
            code = report(store, record, tally, outcome, seconds=seconds)
    if outcome.for_people:
        for point in points if display is Display.FULL else []:
            paper.line((point.line(), "dim"))
        if answer is not None:
            verdict = ("right", "bold green") if right else ("wrong", "bold red")
            paper.line(verdict, f": it is {needle.count}")
        paper.line((f"{amount(speed)} tokens/s", "dim"))
    return code or (0 if right else WRONG)


def _introduction(needle: Needle, length: Length, model: str, chunks: int) -> str:
    share = needle.place / len(needle.text)
    repeats = f"War and Peace has {amount(BOOK_TOKENS)} tokens, so parts of it are repeated.\n"
    return (
        f"{needle.fact!r} is hidden {share:.0%} of the way into about {amount(length.tokens)} GPT-2 tokens of a book.\n"
        f"{model} is asked {needle.question!r} and reads {plural(chunks, 'chunk')}.\n"
        "The gate is off: after each chunk it rewrites its whole memory, and sees nothing else of what it has read.\n"
        + (repeats if length.tokens > BOOK_TOKENS else "")
    )
