"""Questions about a chapter of a book, and where the memory kept or lost their answers."""

import tomllib
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from importlib import resources
from typing import Any

import typer

from memagent.cli.exits import NO_ANSWER, Outcome
from memagent.cli.fact import Trace, trace
from memagent.cli.fetch import SMOL, ensure_fetched
from memagent.cli.needle import book
from memagent.cli.options import Display
from memagent.cli.progress import Tally
from memagent.cli.session import drive
from memagent.cli.show import as_json, costs
from memagent.cli.watch import watch
from memagent.documents import open_document
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
class Chapter:
    """A text and the questions about it."""

    title: str
    text: str
    asked: list[dict[str, Any]]
    """Each `question`, and its `answers`: all are correct and occur in the chapter."""


def chapter() -> Chapter:
    """Loads the shipped chapter."""
    data = tomllib.loads(resources.files("memagent").joinpath(DATA).read_text(encoding="utf-8"))
    number: int = data["number"]
    text = HEADING + book().split(HEADING)[number]
    return Chapter(data["title"], text.strip(), data["questions"])


def tell_fate(found: Trace, read: int) -> tuple[list[int], str]:
    """Returns after which of the `read` chunks the memory had it, and its fate as in `memagent-bench diagnose`."""
    span = [n for stay in found.stays for n in range(stay["chunk"], stay["lost"] or read)]
    if not span:
        return span, "never written"
    return span, "kept to the end" if span[-1] == read - 1 else f"lost at chunk {span[-1] + 1}"


def read_chapter(model: str, seed: int, outcome: Outcome) -> None:
    """Lets a model read the chapter once for all questions and shows the score; exits if an answer is missing."""
    from memagent.memory.agent import MemoryAgent
    from memagent.runstore import RunStore

    source = chapter()
    with (
        closing(RunStore(None)) as store,
        closing(MemoryAgent(ensure_fetched(model), **SIZES, seed=seed, store=store)) as agent,
    ):
        drive(agent.model.window())  # a model that can't be loaded fails before the headline
        if outcome.for_people:
            outcome.paper.line(
                f"{agent.model.name} reads {source.title}, {len(source.text):,} characters, once for "
                f"{plural(len(source.asked), 'question')}.\n"
            )
        document = open_document(source.text, name=source.title)
        tally = Tally(chars=len(source.text))
        stream = agent.stream(document, [item["question"] for item in source.asked])
        watch(agent, stream, tally, outcome.display, changes_only=True)
        seconds, record = tally.elapsed, store.get(stream.run_id)
        answers = [item["answers"] for item in source.asked]
        traces = [trace(store, record.id, n, *facts) for n, facts in enumerate(answers)]
        facts = as_json(store, record, tally)
        usage = store.usage(record.id)
    results: list[dict[str, Any]] = facts["results"]
    for right, fact_trace, result in zip(answers, traces, results, strict=True):
        chunks, fate = tell_fate(fact_trace, result["chunks"])
        result |= {
            "answers": right,
            "right": bool(fact_trace.in_answer),
            "said": fact_trace.chunks,
            "remembered": chunks,
            "fate": fate,
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


def _chunks(numbers: list[int], prefix: str = "") -> str:
    word = "chunk" if len(numbers) == 1 else "chunks"
    return f"{prefix}{word} {', '.join(map(str, numbers))}" if numbers else f"{prefix}no chunk"
