"""Questions about a chapter of a book, and where the memory kept or lost their answers."""

import tomllib
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from importlib import resources
from typing import Any

import typer

from memagent.cli.exits import NO_ANSWER, Outcome
from memagent.cli.fetch import SMOL, ensure_fetched
from memagent.cli.needle import book
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.cli.session import drive
from memagent.cli.show import as_json, costs
from memagent.cli.watch import watch
from memagent.events import ChunkRead, Event, MemoryKept, MemoryUpdated
from memagent.tasks.scores import string_match_part
from memagent.terminal import duration, shorten
from memagent.texts import plural

DATA = "samples/chapter.toml"
HEADING = "\nCHAPTER "
SIZES: dict[str, Any] = {"window": 2048, "chunk_tokens": 384, "memory_tokens": 64}
"""Tokens for `smol`. With larger chunks the chapter would be one or two, which wouldn't test the memory."""
UNTRAINED = (
    "smol has 135 million parameters and was not trained to keep notes, so expect wrong answers. "
)
POINT = "The point is the record: it shows where each answer was kept or lost."
SHOWN = 500
"""Characters of a memory to show: all of it, unless it is full of long words."""


@dataclass(frozen=True)
class Asked:
    """A question about the chapter."""

    question: str
    answers: tuple[str, ...]
    """Each is correct and occurs in the chapter."""

    def is_in(self, text: str) -> bool:
        """Whether a text contains one of the answers."""
        return bool(string_match_part(text, self.answers))


@dataclass(frozen=True)
class Chapter:
    """A text and the questions about it."""

    title: str
    text: str
    asked: tuple[Asked, ...]


@dataclass(frozen=True)
class Trace:
    """Where an answer appeared, by chunk from 0."""

    said: list[int]
    """Chunks whose text contains it."""
    remembered: list[int]
    """Chunks after which the memory contains it."""
    last: int
    """The last chunk read for the question."""

    @property
    def fate(self) -> str:
        """What happened to it, as `memagent-bench diagnose` puts it."""
        if not self.remembered:
            return "never written"
        if self.remembered[-1] == self.last:
            return "kept to the end"
        return f"lost at chunk {self.remembered[-1] + 1}"


def chapter() -> Chapter:
    """The shipped chapter."""
    data = tomllib.loads(resources.files("memagent").joinpath(DATA).read_text(encoding="utf-8"))
    asked = [Asked(each["question"], tuple(each["answers"])) for each in data["questions"]]
    number: int = data["number"]
    text = HEADING + book().split(HEADING)[number]
    return Chapter(data["title"], text.strip(), tuple(asked))


def trace(events: Iterable[Event], text: str, asked: Asked, number: int) -> Trace:
    """Follows the answers to question `number` through the events of a reading of `text`."""
    said: list[int] = []
    remembered: list[int] = []
    memory, last = "", 0
    for event in events:
        if isinstance(event, ChunkRead) and asked.is_in(text[event.start : event.end]):
            said.append(event.chunk)
        if isinstance(event, MemoryUpdated | MemoryKept) and event.question == number:
            memory = event.memory if isinstance(event, MemoryUpdated) else memory
            last = event.chunk
            if asked.is_in(memory):
                remembered.append(last)
    return Trace(said, remembered, last)


def read_chapter(model: str, seed: int, outcome: Outcome) -> None:
    """Lets a model read the chapter once for all questions and shows the score; exits if an answer is missing."""
    from memagent.documents import open_document
    from memagent.memory.agent import MemoryAgent
    from memagent.runstore import RunStore

    read = chapter()
    with (
        closing(RunStore(None)) as store,
        closing(MemoryAgent(ensure_fetched(model), **SIZES, seed=seed, store=store)) as agent,
    ):
        drive(agent.model.window())  # what cannot be loaded fails before the headline
        if outcome.for_people:
            outcome.paper.line(
                f"{agent.model.name} reads {read.title}, {len(read.text):,} characters, once for "
                f"{plural(len(read.asked), 'question')}.\n"
            )
        document = open_document(read.text, name=read.title)
        tally = Tally(chars=len(read.text))
        stream = agent.stream(document, [each.question for each in read.asked])
        watch(agent, stream, tally, outcome.display, changes_only=True)
        seconds, record = tally.elapsed, store.get(stream.run_id)
        events = list(store.events(record.id))
        facts = as_json(store, record, tally)
        usage = store.usage(record.id)
    traces = [trace(events, read.text, each, n) for n, each in enumerate(read.asked)]
    results: list[dict[str, Any]] = facts["results"]
    for each, followed, result in zip(read.asked, traces, results, strict=True):
        result |= {
            "answers": each.answers,
            "right": result["answer"] is not None and each.is_in(result["answer"]),
            "said": followed.said,
            "remembered": followed.remembered,
            "fate": followed.fate,
        }
    if outcome.display is Display.JSON:
        outcome.tell(facts | {"seconds": round(seconds, 3)})
    elif outcome.display is Display.NONE:
        print(*(result["answer"] or "" for result in results), sep="\n")
    else:
        _show(results, outcome)
        outcome.paper.line(
            f"{sum(result['right'] for result in results)} of {len(results)} right. "
            f"{UNTRAINED if model.strip() == SMOL else ''}{POINT}"
        )
        outcome.paper.line((" · ".join([*costs(usage, tally), duration(seconds)]), "dim"))
    if any(result["answer"] is None for result in results):
        raise typer.Exit(NO_ANSWER)


def _show(results: Iterable[dict[str, Any]], outcome: Outcome) -> None:
    for result in results:
        answer, verdict = result["answer"], "right" if result["right"] else "wrong"
        outcome.paper.line("")
        outcome.paper.line((result["question"], "bold cyan"))
        outcome.paper.table(
            [
                ("answer", f"none: {result['detail']}" if answer is None else answer.strip()),
                (verdict, f"the book says {result['answers'][0]!r}"),
                ("in the text", _chunks(result["said"])),
                ("in memory", f"{_chunks(result['remembered'], 'after ')}: {result['fate']}"),
                ("last memory", shorten(result["memory"], SHOWN) or "(empty)"),
            ]
        )
    outcome.paper.line("")


def _chunks(numbers: list[int], where: str = "") -> str:
    word = "chunk" if len(numbers) == 1 else "chunks"
    return f"{where}{word} {', '.join(map(str, numbers))}" if numbers else f"{where}no chunk"
