"""Small tasks and a model that answers them, for tests of the runner."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memagent import ChatRequest, ScriptedModel
from memagent.errors import ConfigError
from memagent.memory.plan import MemorySettings
from memagent.models.base import ChatModel
from memagent.models.limit import Limits
from memagent.prompts import PromptSet
from memagent.tasks import Sample
from memagent.tokens import ByteBound
from memagent_bench.benchmark import Benchmark
from memagent_bench.grid import Grid, Job
from memagent_bench.options import DataOptions
from memagent_bench.record import Provenance, Record
from memagent_bench.runner import Summary
from memagent_bench.systems.base import Outcome, Setting, Status, System
from memagent_bench.watch import Board, SilentWatcher

OPTIONS = DataOptions(counter=ByteBound())


@dataclass
class Toy:
    """A task whose documents say one number among lines that say nothing."""

    name: str
    length: int
    last: int = 1000
    """The first index that there is no sample of."""
    scorer: str = "string_match_all"

    @property
    def facts(self) -> dict[str, str | int | bool]:
        return {"haystack": "toy", "nested": False}

    def sample(self, index: int) -> Sample:
        if index >= self.last:
            raise ConfigError(f"{self.name} has {self.last} samples, and no sample {index}")
        number = str(number_of(self.name, self.length, index))
        fact = f"The number is {number}.\n"
        lines = f"Line {index} says nothing of it.\n" * (self.length // 30)
        context = (lines[: len(lines) // 2] + fact + lines[len(lines) // 2 :])[: self.length]
        return Sample(
            task=self.name,
            index=index,
            length=self.length,
            tokens=len(context),
            context=context,
            question=f"Which number does the text of sample {index} say?",
            outputs=(number,),
            generate=16,
        )


def number_of(task: str, length: int, index: int) -> int:
    """What a sample's document says."""
    digest = hashlib.sha256(f"{task} {length} {index}".encode()).digest()
    return 100_000 + int.from_bytes(digest[:4]) % 900_000


def read(request: ChatRequest) -> str:
    """What a model that finds the number would say."""
    shown = request.parts.get("chunk", "") + " " + request.parts.get("memory", "")
    found = re.search(r"The number is (\d+)", shown)
    return f"The number is {found[1]}." if found else "Nothing so far."


def model(respond: Any = read, *, window: int = 1408) -> ScriptedModel:
    return ScriptedModel(respond, window=window)


def toys(*names: str, last: int = 1000) -> dict[str, Any]:
    return {
        name: lambda length, options, name=name: Toy(name, length, last) for name in names or ("a",)
    }


def grid(
    *,
    tasks: Mapping[str, Any] | None = None,
    lengths: Sequence[int] = (1000,),
    samples: int = 2,
    systems: Sequence[str] = ("memory",),
    suite: str = "tracking",
) -> Grid:
    return Grid(suite, tasks or toys(), lengths, samples, systems, OPTIONS)


def benchmark(
    out: Path,
    *,
    model: ChatModel,
    grid: Grid,
    limits: Limits | None = None,
    concurrency: int = 4,
    **settings: Any,
) -> Benchmark:
    given: dict[str, Any] = {"chunk_tokens": 400, "cuts": "exact"} | settings
    return Benchmark(
        grid=grid,
        model=model,
        prompts=PromptSet.load("plain"),
        settings=MemorySettings(**given),
        out=out,
        limits=limits or Limits(),
        concurrency=concurrency,
    )


class Listening(SilentWatcher):
    """Keeps what it is told."""

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self.told: list[Record | Job] = []

    def end(self, job: Job, record: Record) -> None:
        super().end(job, record)
        self.told.append(record)

    def drop(self, job: Job, why: str) -> None:
        super().drop(job, why)
        self.told.append(job)


async def run(bench: Benchmark, **more: Any) -> Summary:
    """One session, its model closed."""
    try:
        async with bench.open() as opened:
            return await opened.run(more.pop("watch", SilentWatcher), **more)
    finally:
        await bench.model.aclose()


class Raising:
    """A system that fails as it is told."""

    name = "raising"

    def __init__(self, *errors: Exception | None) -> None:
        self.errors = list(errors)

    async def answer(self, sample: Sample, run_id: str) -> Outcome:
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return Outcome(answer=sample.outputs[0], status=Status.ANSWERED)


def opening(systems: Mapping[str, System]) -> Any:
    """What opens these systems."""

    def open_system(name: str, setting: Setting) -> System:
        return systems[name]

    return open_system


PROVENANCE = Provenance(
    model="scripted",
    server=None,
    prompts="plain:0",
    chunker="exact:400:utf8-bytes",
    window=1408,
    memory_tokens=100,
    sampling=MemorySettings().sampling,
    seed=0,
    commit=None,
    dirty=None,
    packages={},
    python="3.11",
    machine="test",
)


def record(index: int = 0, **fields: Any) -> Record:
    """A record of nothing in particular."""
    given: dict[str, Any] = {
        "suite": "tracking",
        "task": "a",
        "length": 1000,
        "index": index,
        "system": "memory",
        "score": 1.0,
        "status": Status.ANSWERED,
        "scorer": "string_match_all",
        "scores": {"string_match_all": 1.0},
        "answer": "42",
        "outputs": ("42",),
        "question": "Which?",
        "tokens": 990,
        "chars": 990,
        "bytes": 990,
        "seconds": 1.0,
        "started": "2026-11-21T12:00:00+00:00",
        "document": "0" * 16,
        "provenance": PROVENANCE,
    }
    return Record(**(given | fields))


def squad_file(path: Path) -> Path:
    """A few paragraphs in SQuAD's form, enough for 8K tokens."""
    words = (
        "The mill of {} stood by the river, and its wheel was turned by {} men in the winter. " * 8
    )
    articles = [
        {
            "title": f"Mill {n}",
            "paragraphs": [
                {
                    "context": words.format(*[f"Town{n}", n + 100] * 8),
                    "qas": [
                        {
                            "id": f"q{n}",
                            "question": f"How many men turned the wheel of Town{n}?",
                            "is_impossible": False,
                            "answers": [{"text": str(n + 100), "answer_start": 0}],
                        }
                    ],
                }
            ],
        }
        for n in range(150)
    ]
    path.write_text(json.dumps({"version": "v2.0", "data": articles}))
    return path
