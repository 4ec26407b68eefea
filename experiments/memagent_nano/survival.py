"""How many answers a constant hazard leaves right in longer documents: said before they are read, compared after."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

from memagent.errors import ConfigError
from memagent_bench.diagnose.diagnosis import diagnose, hazard
from memagent_bench.diagnose.traces import Fate, Trace
from memagent_bench.record import Record
from memagent_bench.stats import wilson

SYSTEM = "memory"


@dataclass(frozen=True)
class Hazard:
    """What short documents say of a kind of question."""

    task: str
    lengths: tuple[int, ...]
    """That were read."""
    losses: int
    steps: int
    """Chunk steps at risk."""
    low: float
    rate: float
    """Losses / steps."""
    high: float
    """With `low`, the exact interval at 95%."""
    sound: float
    """Share of right answers among the things that no memory lost: what was never written, or misread at the end, does
    not depend on the length."""


@dataclass(frozen=True)
class Forecast:
    """Share of right answers at a length."""

    task: str
    length: int
    """Tokens of the length tokenizer."""
    chunks: float
    """Of a document, on average."""
    low: float
    """With the highest hazard of its interval."""
    mean: float
    high: float


def fit(traces: Sequence[Trace]) -> Hazard:
    """The hazard of one task, all lengths together."""
    risk = hazard(traces)
    if risk.rate is None or risk.interval is None:
        raise ConfigError(
            f"{traces[0].record.task}: no memory held what was wanted; nothing is at risk"
        )
    kept = [trace.got for trace in traces if trace.fate is not Fate.LOST]
    lengths = tuple(sorted({trace.record.length for trace in traces}))
    low, high = risk.interval
    task = traces[0].record.task
    return Hazard(
        task, lengths, risk.losses, risk.steps, low, risk.rate, high, mean(kept) if kept else 0.0
    )


def forecast(found: Hazard, records: Sequence[Record], length: int) -> Forecast:
    """What a constant hazard h leaves: sound x mean over samples of (1 - h) ** steps.

    Steps are the chunks behind the first note that a sample needs; nested samples have it at the same share of every
    length.

    Args:
        found: of the task.
        records: of the task at one length, the longest that was read.
        length: in tokens.
    """
    each = mean(record.chunks or 0 for record in records) / records[0].length * length
    shares = [1 - _first(record) for record in records]

    def left(rate: float) -> float:
        return found.sound * mean((1 - rate) ** (each * share) for share in shares)

    return Forecast(found.task, length, each, left(found.high), left(found.rate), left(found.low))


def predict(
    folder: Path, lengths: Sequence[int], *, longest: int
) -> tuple[list[Hazard], list[Forecast]]:
    """Hazards of a benchmark's folder, and what they say of lengths. Blocks.

    Args:
        folder: what `memagent-bench notes --nested` wrote.
        lengths: to be predicted, in tokens; shorter ones, that were read, show how well the hazard fits.
        longest: what is longer is left out of the hazard.

    Raises:
        ConfigError: no samples, or no memory ever held anything.
        StoreError: the folder has no records or no runs.
    """
    by_task: defaultdict[str, list[Trace]] = defaultdict(list)
    for trace in diagnose(folder).traces:
        if trace.record.system == SYSTEM and trace.record.length <= longest:
            by_task[trace.record.task].append(trace)
    if not by_task:
        raise ConfigError(f"{str(folder)!r} has no answered sample of at most {longest} tokens")
    hazards: list[Hazard] = []
    forecasts: list[Forecast] = []
    for _, traces in sorted(by_task.items()):
        hazards.append(fit(traces))
        top = hazards[-1].lengths[-1]
        records = [trace.record for trace in traces if trace.record.length == top]
        forecasts += [forecast(hazards[-1], records, length) for length in lengths]
    return hazards, forecasts


@dataclass(frozen=True)
class Point:
    """What was measured."""

    task: str
    length: int
    low: float
    mean: float
    high: float
    n: int


def points(records: Sequence[Record]) -> list[Point]:
    """Share of right answers by task and length, with Wilson's interval at 95%. No answer is a wrong one."""
    scores: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for record in records:
        if record.system == SYSTEM:
            scores[record.task, record.length].append(record.score or 0.0)
    found: list[Point] = []
    for (task, length), of_cell in sorted(scores.items()):
        low, high = wilson(mean(of_cell), len(of_cell))
        found.append(Point(task, length, low, mean(of_cell), high, len(of_cell)))
    return found


def write(hazards: Sequence[Hazard], forecasts: Sequence[Forecast], file: Path) -> None:
    """As JSON: what is committed before the long documents are read."""
    whole = {
        "hazards": [asdict(one) for one in hazards],
        "forecasts": [asdict(one) for one in forecasts],
    }
    file.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def read(file: Path) -> list[Forecast]:
    """The forecasts that `write` wrote."""
    return [Forecast(**one) for one in json.loads(file.read_text(encoding="utf-8"))["forecasts"]]


def _first(record: Record) -> float:
    """The share of the document in front of the first note that is needed."""
    return min(place.start for place in record.evidence if place.supports) / record.chars
