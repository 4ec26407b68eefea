"""The answer to the committed question: see ADR 0016."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from memagent.errors import ConfigError
from memagent_bench.record import Record
from memagent_bench.records import read_records
from memagent_bench.significance import Difference, paired_difference
from memagent_smol.measure import CELLS, MEMORY_GATE, Cell

BM25 = "bm25-model"


@dataclass(frozen=True)
class Verdict:
    """The two primary differences, each a score minus another one."""

    more: Difference
    """(a): imitation and rewards minus as much more imitation, `short`."""
    bm25: Difference
    """(b): imitation and rewards minus BM25 with the better reader, `long`."""
    reader: str
    """Folder name of that reader."""

    @property
    def positive(self) -> bool:
        """Whether both intervals lie above 0."""
        return self.more.low > 0 and self.bm25.low > 0


def verdict(rewarded: Path, more: Path, untrained: Path) -> Verdict:
    """Answers the question from three folders that `measure` wrote.

    Args:
        rewarded: imitation and rewards: `short` and `long`, and `long` with `bm25-model`.
        more: as much more imitation: `short`.
        untrained: `long` with `bm25-model`.

    Raises:
        ConfigError: a sample is missing. One without an answer counts as wrong.
    """
    trained = read_records(rewarded)
    others = read_records(more)
    short = [_pairs(trained, others, [cell], MEMORY_GATE, MEMORY_GATE) for cell in CELLS["short"]]
    readers = {folder.name: read_records(folder) for folder in (rewarded, untrained)}
    rivals = {
        name: _pairs(trained, records, CELLS["long"], MEMORY_GATE, BM25)
        for name, records in readers.items()
    }
    # The better reader gives the smaller difference.
    reader = min(rivals, key=lambda name: sum(rivals[name]))
    return Verdict(paired_difference(short), paired_difference([rivals[reader]]), reader)


def scores(records: Iterable[Record], cell: Cell, system: str) -> list[float]:
    """Returns the scores of all samples of a cell, by index.

    Raises:
        ConfigError: the number of samples isn't the cell's.
    """
    samples = {
        record.index: record.score or 0.0
        for record in records
        if (record.task, record.length, record.system) == (cell.task, cell.length, system)
    }
    if len(samples) != cell.samples:
        raise ConfigError(
            f"{cell.task} at {cell.length} tokens has {len(samples)} of {cell.samples} samples of {system!r}: measure "
            f"the rest first"
        )
    return [samples[index] for index in sorted(samples)]


def _pairs(
    a: Sequence[Record], b: Sequence[Record], cells: Sequence[Cell], of_a: str, of_b: str
) -> list[float]:
    return [
        left - right
        for cell in cells
        for left, right in zip(scores(a, cell, of_a), scores(b, cell, of_b), strict=True)
    ]
