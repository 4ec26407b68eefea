"""The demo of a trained policy: a fact hidden in a long text, and the memory that has to carry it to the end."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from memagent.cli.exits import NO_ANSWER, WRONG, Outcome
from memagent.cli.needle import BOOK_TOKENS, Length, Needle, hide
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.cli.results import as_json, report
from memagent.cli.session import drive
from memagent.cli.watch import Watcher, watch, watcher
from memagent.events import ChunkRead, Event, MemoryUpdated
from memagent.terminal import Paper, amount, duration, plural, shorten

if TYPE_CHECKING:
    from memagent.memory.agent import MemoryAgent
    from memagent.run.result import Estimate

NAME = "War and Peace, with a needle"
GIST = 70
"""Characters shown of a memory."""


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


class PointsWatcher(Watcher):
    """Notes the memory at ten points of a document, and behind its needle.

    Args:
        inner: shows the run.
        chars: of the document.
        needle: the character behind the needle.
        say: whether to print each point at once, with the speed and the time left.
    """

    def __init__(self, inner: Watcher, *, chars: int, needle: int, say: bool = False) -> None:
        super().__init__(inner.tally)
        self._inner = inner
        self._chars, self._needle, self._say = chars, needle, say
        tenths = [chars * tenth // 10 for tenth in range(1, 10)]
        self._marks = sorted({chars // 100, *tenths, needle})
        self._chunk: ChunkRead | None = None
        self.points: list[Point] = []

    def __enter__(self) -> PointsWatcher:
        self._inner.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """Leaves the inner watcher."""
        self._inner.__exit__(*error)

    def event(self, event: Event) -> None:
        """Passes the event on, and notes the memory where a mark was passed."""
        self._inner.event(event)
        if isinstance(event, ChunkRead):
            self._chunk = event
        elif isinstance(event, MemoryUpdated) and self._chunk is not None:
            self._note(event, self._chunk)

    def _note(self, event: MemoryUpdated, chunk: ChunkRead) -> None:
        passed = [mark for mark in self._marks if mark <= chunk.end]
        if not passed and not chunk.last:
            return
        self._marks = self._marks[len(passed) :]
        share = 1.0 if chunk.last else round(chunk.end / self._chars, 4)
        point = Point(share, event.chunk, self._needle in passed, event.memory)
        self.points.append(point)
        if self._say:
            left = self.tally.left
            pace = f"  [{amount(self.tally.speed)} tokens/s, {duration(left)} left]" if left else ""
            print(f"{point.line()}{pace}", flush=True)


def find_needle(model: str, length: Length, seed: int, shown: Display, outcome: Outcome) -> int:
    """Hides a needle, lets the model look for it with the gate off, and says how that went.

    Args:
        model: a spec.
        length: of the text.
        seed: chooses what is hidden, and where; of the run too.
        shown: how it is shown.
        outcome: of the command.

    Returns:
        The exit code: 0 for the right answer, `WRONG` for another, 6 for none.

    Raises:
        MemagentError: the reading ended early.
    """
    from memagent.documents import open_document
    from memagent.memory.agent import MemoryAgent
    from memagent.runstore import RunStore

    paper = Paper(colour=shown is Display.FULL)
    talks = shown in (Display.FULL, Display.PLAIN)
    with closing(RunStore(None)) as store:
        # The gate is off, so that nothing but the policy itself carries the memory on.
        agent = MemoryAgent(model, gate="off", seed=seed, store=store)
        with closing(agent):
            needle = hide(length, seed)
            document = open_document(needle.text, name=NAME)
            estimate = drive(agent.aestimate(document, needle.question))
            if talks:
                _introduce(paper, agent, needle, length, estimate)
            begun = time.monotonic()
            tally = Tally(chars=len(needle.text))
            plain = shown is Display.PLAIN
            inner = Watcher(tally) if plain else watcher(shown, tally)
            points = PointsWatcher(inner, chars=len(needle.text), needle=needle.end, say=plain)
            stream = agent.stream(document, needle.question)
            watch(agent, stream, points)
            seconds = time.monotonic() - begun
        record = store.get(stream.run_id)
        usage, answer = store.usage(record.id), tally.notebooks[0].answer
        speed = (usage.prompt_tokens + usage.completion_tokens) / seconds if seconds > 0 else 0.0
        right = needle.is_right(answer)
        if shown is Display.JSON:
            said = {
                "fact": needle.fact,
                "place": needle.place,
                "characters": len(needle.text),
                "right": right,
                "seconds": round(seconds, 3),
                "tokens_per_second": round(speed, 1),
                "memories": [asdict(point) for point in points.points],
            }
            outcome.tell_result(as_json(store, record, tally) | said)
            code = 0 if answer is not None else NO_ANSWER
        else:
            code = report(store, record, tally, shown, outcome, seconds=seconds)
    if talks:
        if shown is Display.FULL:
            for point in points.points:
                paper.line((point.line(), "dim"))
        if answer is not None:
            verdict = ("right", "bold green") if right else ("wrong", "bold red")
            paper.line(verdict, f": it is {needle.count}")
        paper.line((f"{amount(speed)} tokens/s", "dim"))
    return code or (0 if right else WRONG)


def _introduce(
    paper: Paper, agent: MemoryAgent, needle: Needle, length: Length, estimate: Estimate
) -> None:
    share = needle.place / len(needle.text)
    lines = [
        f"{needle.fact!r} is hidden {share:.0%} of the way into about {amount(length.tokens)} GPT-2 tokens of a book.",
        f"{agent.model.name} is asked {needle.question!r} and reads {plural(estimate.chunks, 'chunk')}.",
        "The gate is off: after each chunk it rewrites its whole memory, and it sees nothing else of what it has read.",
    ]
    if length.tokens > BOOK_TOKENS:
        lines.append(
            f"War and Peace has {amount(BOOK_TOKENS)} tokens, so parts of it are repeated."
        )
    for line in (*lines, ""):
        paper.line((line, "dim"))
