"""How many of a document's rows are found: `extract` beside asking for a list.

Usage: python -m memagent_bench.rows [--smol] [--documents N] [--write docs/benchmarks.md]

A document is sentences of War and Peace with an invoice about every 500 tokens; one invoice in five is mentioned twice.
A rule plays the model, so the table shows what each way of reading can hold, not what a model finds. `--smol` adds a
language model at the shortest length.
"""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass

from pydantic import BaseModel, Field

from memagent import ChatModel, ChatRequest, MemoryAgent, ScriptedModel, open_model
from memagent.tasks.origin import machine
from memagent.tokens import TokenCounter
from memagent_bench.haystacks import essays
from memagent_bench.length_tokens import length_counter
from memagent_bench.lengths import K
from memagent_bench.perf.measure import markdown, page_parser, show

LENGTHS = (4 * K, 64 * K, 1024 * K)
EVERY = 500
"""Tokens between two invoices."""
WINDOW = 8192
WHAT = "every invoice"
QUESTION = "List all invoices: the number and the total of each."
_WRITTEN = re.compile(r"Invoice (\d{5}) is over (\d+) euros\.")
_LISTED = re.compile(r"(\d{5})\D{1,20}?(\d+)")


class Invoice(BaseModel):
    """An invoice."""

    number: int = Field(description="five digits")
    total: int = Field(description="in euros")


@dataclass(frozen=True)
class Paper:
    """A document and its rows."""

    text: str
    rows: frozenset[tuple[int, int]]


def make_paper(tokens: int, seed: int, counter: TokenCounter) -> Paper:
    """Makes a document of about `tokens` tokens."""
    draw = random.Random(f"{tokens}-{seed}")
    filler = essays((), counter)
    numbers = draw.sample(range(10_000, 100_000), max(1, tokens // EVERY))
    rows = {(number, draw.randrange(10, 10_000)) for number in numbers}
    mentions = [*rows, *draw.sample(sorted(rows), len(rows) // 5)]
    notes = [f"Invoice {number} is over {total} euros." for number, total in mentions]
    room = tokens - sum(map(filler.cost, notes))
    sentences = filler.take(0, filler.within(room))
    places = sorted(draw.sample(range(len(sentences) + 1), len(notes)), reverse=True)
    draw.shuffle(notes)
    for place, sentence in zip(places, notes, strict=True):
        sentences.insert(place, sentence)
    return Paper(" ".join(sentences), frozenset(rows))


def play(counter: TokenCounter) -> ScriptedModel:
    """Returns a model that finds every invoice of a chunk; a plain memory keeps the newest that fit, each once."""

    def reply(request: ChatRequest) -> str:
        parts = request.parts
        memory = "" if parts["memory"] == parts["empty_memory"] else parts["memory"]
        if request.kind == "answer":
            return memory or "none"
        invoices = _WRITTEN.findall(parts["chunk"])
        if WHAT in parts["question"]:
            rows = [f'{{"number": {number}, "total": {total}}}' for number, total in invoices]
            return "\n".join(rows) or "[]"
        noted = [f"{number}: {total}" for number, total in invoices]
        lines = list(dict.fromkeys([*memory.splitlines(), *noted]))
        while counter.count("\n".join(lines)) > request.max_tokens:
            del lines[0]
        return "\n".join(lines) or "none"

    return ScriptedModel(reply, window=WINDOW, counter=counter, name="rule")


@dataclass(frozen=True)
class ReadingScore:
    """The result of one reading of one document."""

    recall: float
    wrong: int
    invalid: int
    calls: int
    seconds: float


def read(model: ChatModel, paper: Paper, *, extracts: bool) -> ReadingScore:
    """Reads a document once."""
    begun, invalid = time.perf_counter(), 0
    if extracts:
        # With smol's own settings a reply has room for two rows.
        memory = 128 if model.name == "smol" else None
        agent = MemoryAgent(model, store=None, memory_tokens=memory)
        result = agent.extract(paper.text, Invoice, WHAT)
        rows = {(row.value.number, row.value.total) for row in result.rows}
        invalid = len(result.invalid)
    else:
        result = MemoryAgent(model, store=None).ask(paper.text, QUESTION)
        rows = {(int(n), int(total)) for n, total in _LISTED.findall(result.answer or "")}
    seconds = time.perf_counter() - begun
    recall = len(rows & paper.rows) / len(paper.rows)
    return ReadingScore(recall, len(rows - paper.rows), invalid, result.usage.calls, seconds)


def measure(
    model: ChatModel, tokens: int, documents: int, counter: TokenCounter
) -> list[tuple[str, ...]]:
    """Measures two lines of the table."""
    papers = [make_paper(tokens, seed, counter) for seed in range(documents)]
    lines: list[tuple[str, ...]] = []
    for extracts in (False, True):
        readings = [read(model, paper, extracts=extracts) for paper in papers]
        recalls = [reading.recall for reading in readings]
        seconds = [reading.seconds for reading in readings]
        lines.append(
            (
                f"{tokens // K:,}K",
                model.name,
                "extract" if extracts else "ask",
                f"{len(papers[0].rows):,}",
                f"{documents}",
                f"{sum(recalls) / documents:.3f} ({min(recalls):.3f} to {max(recalls):.3f})",
                f"{sum(reading.wrong for reading in readings)}",
                f"{sum(reading.invalid for reading in readings)}",
                f"{sum(reading.calls for reading in readings) / documents:,.0f}",
                f"{min(seconds):.1f} to {max(seconds):.1f}",
            )
        )
    return lines


def main() -> None:
    """Measures, prints the table, and writes it into a page if one is given."""
    parser = page_parser(__doc__)
    parser.add_argument("--documents", type=int, default=3)
    parser.add_argument(
        "--smol", action="store_true", help="measure smol too, on one short document"
    )
    arguments = parser.parse_args()
    counter = length_counter(None)
    head = ("tokens", "model", "way", "rows", "n", "found", "wrong", "invalid", "calls", "s")
    lines = [
        line
        for tokens in LENGTHS
        for line in measure(play(counter), tokens, arguments.documents, counter)
    ]
    if arguments.smol:
        lines += measure(open_model("smol"), LENGTHS[0], 1, counter)
    text = f"{machine()}; n documents\n\n{markdown([head, *lines])}\n"
    show(text, "python -m memagent_bench.rows --smol", arguments.write)


if __name__ == "__main__":
    main()
