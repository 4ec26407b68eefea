"""Measures held-out samples under one arm: the cells of ADR 0016 and others, with memagent-bench."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from memagent.memory.plan import MemorySettings
from memagent.messages import Sampling
from memagent.prompts import PromptSet
from memagent.tasks import Task
from memagent_bench.benchmark import Benchmark
from memagent_bench.grid import Grid
from memagent_bench.length_tokens import length_counter
from memagent_bench.lengths import K
from memagent_bench.longqa.data import hotpotqa, squad
from memagent_bench.longqa.questions import QuestionTask
from memagent_bench.notes.tasks import TASKS as NOTES
from memagent_bench.options import DataOptions
from memagent_bench.ruler.tasks import TASKS as RULER
from memagent_bench.runner import Summary
from memagent_bench.watch import PlainWatcher
from memagent_engines.smol import smol_folder
from memagent_engines.transformers.model import TransformersModel
from memagent_smol.facts import facts
from memagent_smol.lessons import MEMORY, PROMPTS, WINDOW
from memagent_smol.questions import MANNER
from memagent_smol.sources import UNSEEN_HOTPOT, UNSEEN_SQUAD

SUITE = "smol"
SEED = 1042
"""Seed of all held-out samples."""
CHUNK = 512
CONCURRENCY = 16
CHANGES = "changes_"
"""Prefix of a task's name, before the number of competing statements."""
MEMORY_GATE, UNTRAINED = "memory-gate", "memory"
"""Systems: a trained policy may keep its memory with a word; the untrained model doesn't know that word."""


@dataclass(frozen=True)
class Cell:
    """Samples of one kind and length."""

    task: str
    """`hotpotqa`, `squad`, a task of RULER or `notes`, or `changes_` or `unanswered_` and the number of competing
    statements."""
    length: int
    """Length in GPT-2 tokens."""
    samples: int


CELLS: Mapping[str, tuple[Cell, ...]] = {
    "short": (Cell("changes_16", 4 * K, 200), Cell("hotpotqa", 4 * K, 200)),
    "long": (Cell("changes_128", 64 * K, 48),),
    "unanswered": (Cell("unanswered_16", 4 * K, 100),),
    "curve": tuple(
        Cell(f"{CHANGES}{many}", length * K, samples)
        for many in (8, 32, 128)
        for length, samples in ((16, 24), (64, 12))
        if (many, length) != (128, 64)
    ),
    # The questions of `memagent demo --model nano`, among notes about others.
    "notes": (Cell("once_sparse", 64 * K, 12),),
    "ruler-4k": tuple(Cell(task, 4 * K, 20) for task in (*RULER, "squad")),
    "ruler-16k": tuple(Cell(task, 16 * K, 20) for task in (*RULER, "squad", "hotpotqa")),
    # SQuAD's held-out paragraphs end before 64K.
    "ruler-64k": tuple(Cell(task, 64 * K, 10) for task in (*RULER, "hotpotqa")),
    "256k": tuple(
        Cell(task, 256 * K, 6)
        for task in ("niah_single_2", "niah_multikey_3", "hotpotqa", f"{CHANGES}128")
    ),
    "1m": tuple(Cell("niah_single_2", length * K, 4) for length in (512, 1024)),
}
"""`short` and `long` are primary; the others are exploratory."""


def plan_held_out(sources: Path, cells: Iterable[Cell], systems: Sequence[str]) -> Grid:
    """Returns the grid of held-out samples.

    Args:
        sources: the folder that `memagent_smol.sources.divide` wrote.
        cells: each with its number of samples.
        systems: names in `memagent_bench.systems.registry.SYSTEMS`.
    """
    cells = tuple(cells)
    names = {cell.task: None for cell in cells}
    return Grid(
        suite=SUITE,
        tasks={name: partial(_task, name, sources) for name in names},
        lengths=sorted({cell.length for cell in cells}),
        samples=0,
        systems=systems,
        options=DataOptions(counter=length_counter(None), seed=SEED),
        counts={(cell.task, cell.length): cell.samples for cell in cells},
    )


async def measure(
    grid: Grid,
    out: Path,
    *,
    adapter: Path | None,
    trained: bool = True,
    open_model: Callable[..., TransformersModel] = TransformersModel,
) -> Summary:
    """Has a policy answer the samples that it hasn't answered yet.

    Args:
        grid: see `plan_held_out`.
        out: folder of the records; each adapter needs its own.
        adapter: the arm's adapter; None for the untrained model.
        trained: whether to use the policy's wording; otherwise the set `small`.
        open_model: makes the model.

    Raises:
        MemagentError: see `Benchmark`.
    """
    # Takes half the time of float32 on a CPU that computes in bfloat16, and most replies are a word or two.
    name = "smol" if adapter is None else f"smol:{adapter.name}"
    model = open_model(
        smol_folder(), adapter=adapter, window=WINDOW, dtype="bfloat16", name=name, max_batch=16
    )
    bench = Benchmark(
        grid=grid,
        model=model,
        prompts=PromptSet.load(str(PROMPTS) if trained else "small"),
        settings=MemorySettings(
            window=WINDOW,
            chunk_tokens=CHUNK,
            memory_tokens=MEMORY,
            degenerate="take",
            sampling=Sampling(temperature=0.0),
        ),
        out=out,
        concurrency=CONCURRENCY,
    )
    try:
        async with bench.open() as opened:
            return await opened.run(PlainWatcher)
    finally:
        await model.aclose()


def _task(name: str, sources: Path, length: int, options: DataOptions) -> Task:
    if name == "hotpotqa":
        questions = hotpotqa((sources / UNSEEN_HOTPOT,))
        return QuestionTask(name, length, options, questions, MANNER)
    if name == "squad":
        return QuestionTask(name, length, options, squad(sources / UNSEEN_SQUAD), MANNER)
    if make := {**RULER, **NOTES}.get(name):
        return make(length, options)
    many = int(name.rpartition("_")[-1])
    return facts(
        family="changes",
        length=length,
        seed=options.seed,
        held_out=True,
        many=many,
        answered=name.startswith(CHANGES),
    )
