"""Measures a policy on held-out documents, cell by cell, with a file of answers for each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memagent_nano.direct import DIRECT
from memagent_nano.kept import SEED
from memagent_nano.sizes import Size
from memagent_nano.stages import GATE, HERE, KEPT, MEASURED, Place, agent_settings
from memagent_train.config.sections import ModelSettings
from memagent_train.config.train import load_train
from memagent_train.runs.evaluate import evaluate
from memagent_train.runs.target import Target

MANY = 4096
"""Available samples of a cell; always the same ones are used."""
TRAINED = ("once", "last", "hop")
NEW = ("count", "pair", "sign")
ROLLOUTS = 0.7
"""Temperature of the rollouts that are rewarded."""
LONGER = {4: 100, 16: 60}
"""Multiple of the longest training documents -> samples. The longest don't fit the window of `direct`."""
FEW = (8, 32)
"""Notes of the longest documents if they have fewer than usual (128): shows the cost of length alone."""


@dataclass(frozen=True)
class Cell:
    """Samples of one kind and length."""

    family: str
    length: int
    """Length in GPT-2 tokens."""
    n: int
    new: str = ""
    """Part of the documents that training never shows: `names` (and numbers), `wording`, `books`; empty for none."""
    temperature: float = 0.0
    """0: greedy. Otherwise as for rollouts."""
    notes: int = 0
    """Notes in a document; 0: as many as the size has at this length."""

    @property
    def name(self) -> str:
        """Name of the file."""
        drawn = "" if self.temperature == 0 else "-drawn"
        special = self.new or (f"{self.notes}notes" if self.notes else "")
        return f"{self.family}-{self.length}{f'-{special}' if special else ''}{drawn}"

    def source(self, size: Size) -> str:
        """Returns the source as a setting."""
        arguments = {"family": json.dumps(self.family), "size": json.dumps(size.name)}
        arguments |= {"seed": str(SEED), "nested": "true"}
        if self.new:
            arguments[f"new_{self.new}"] = "true"
        if self.notes:
            arguments["every"] = str(self.length // self.notes)
        inside = ", ".join(f"{name} = {value}" for name, value in arguments.items())
        return (
            f'data.source=[{{ kind = "task", use = "memagent_nano.task:notes", name = "{self.family}", '
            f"count = {MANY}, arguments = {{ {inside} }}, lengths = [{self.length}] }}]"
        )


def cells(size: Size) -> Iterator[Cell]:
    """Yields the cells that every arm is measured on."""
    length = size.lengths[-1]
    for family in TRAINED:
        yield Cell(family, length, 200)
        yield Cell(family, length, 200, temperature=ROLLOUTS)
        for times, n in LONGER.items():
            yield Cell(family, times * length, n)
        yield from (
            Cell(family, max(LONGER) * length, LONGER[max(LONGER)], notes=few) for few in FEW
        )
        for new in ("names", "wording", "books"):
            yield Cell(family, length, 100, new)
    for family in NEW:
        yield Cell(family, length, 100)


def answers(place: Place, stage: str, cell: Cell) -> Path:
    """Returns the file of a cell's answers; see `measure`."""
    return place.of(stage) / MEASURED / f"{cell.name}.jsonl"


def is_measured(place: Place, stage: str) -> bool:
    """Returns whether a stage's policy has answered all cells, and its gate and kept notes are measured."""
    files = [answers(place, stage, cell) for cell in cells(place.size)]
    if stage != DIRECT:
        files += [gate_file(place, stage), kept_file(place, stage)]
    return all(file.is_file() for file in files)


def gate_file(place: Place, stage: str) -> Path:
    """Returns the file with the result of `gate`."""
    return place.of(stage) / GATE


def kept_file(place: Place, stage: str) -> Path:
    """Returns the file with the result of `measure_kept`."""
    return place.of(stage) / KEPT


def measure(place: Place, stage: str, cell: Cell) -> Path:
    """Has the policy answer the samples of a cell, unless it already has. Blocks.

    Args:
        place: place of the course.
        stage: stage whose policy answers.
        cell: the samples.

    Returns:
        JSON lines as `memagent-train eval --out` writes them.

    Raises:
        ConfigError: the stage has no policy yet.
    """
    policy = place.find_trained(stage)
    file = answers(place, stage, cell)
    if file.is_file():
        return file
    reads = stage != DIRECT
    settings = [
        f"model.path={json.dumps(str(policy))}",
        *(agent_settings(place.size) if reads else ()),
        cell.source(place.size),
        "data.seed=1",
        f"evaluation.temperature={cell.temperature}",
    ]
    config = load_train(HERE / ("grpo.toml" if reads else "direct.toml"), settings)
    target = Target(ModelSettings(path=str(policy), dtype="float32"))
    evaluate(target, config, lengths=[cell.length], n=cell.n, out=file)
    return file
