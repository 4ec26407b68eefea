"""How many answers a constant hazard leaves right in longer documents: said before they are read, compared after."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from memagent.errors import ConfigError
from memagent.tasks import Evidence
from memagent_bench.diagnose.diagnosis import diagnose, hazard
from memagent_bench.diagnose.traces import Fate, Trace
from memagent_bench.record import Record
from memagent_bench.stats import Array, wilson

SYSTEM = "memory"
RESAMPLES = 4000
SEED = 20261122
"""Of them."""


@dataclass(frozen=True)
class Hazard:
    """What was read says of a kind of question."""

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
    """With `low`, the exact interval at 95%, as if steps were independent."""
    sound: float
    """Share of right answers where no memory lost what was wanted: what was never written, or misread at the end. A
    forecast takes it to be the same at all lengths; the hazards of single lengths show whether it is."""


@dataclass(frozen=True)
class Forecast:
    """Share of right answers at a length."""

    task: str
    length: int
    """Tokens of the length tokenizer."""
    chunks: float
    """Of a document, on average."""
    n: int
    """Samples that are to be measured."""
    low: float
    """With `high`: what the mean of so many samples lies between, at 95%."""
    mean: float
    high: float


def fit(traces: Sequence[Trace]) -> Hazard:
    """The hazard of one task, all lengths together.

    Raises:
        ConfigError: no memory held anything.
    """
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


def forecast(traces: Sequence[Trace], length: int, n: int) -> Forecast:
    """What a constant hazard h leaves: sound x mean over samples of (1 - h) ** steps.

    Steps are the chunks behind the note that a sample needs; nested samples have it at the same share of every length.
    The interval is that of a bootstrap over samples (all lengths of one together) with h drawn from Jeffreys' gamma
    posterior, so that no losses do not mean no hazard, and with the chance of n samples on top.

    Args:
        traces: of one task, at the lengths that were read.
        length: in tokens.
        n: samples that are to be read.

    Raises:
        ConfigError: no memory held anything.
    """
    found = fit(traces)
    longest = [one.record for one in traces if one.record.length == found.lengths[-1]]
    each = mean(record.chunks or 0 for record in longest) / found.lengths[-1] * length
    samples: defaultdict[int, list[Trace]] = defaultdict(list)
    for one in traces:
        samples[one.record.index].append(one)
    rows = np.array([_counted(of) for of in samples.values()])

    def left(rate: float, sound: float, shares: Array) -> float:
        return float(sound * np.mean((1 - min(rate, 1.0)) ** (each * shares)))

    rng = np.random.default_rng(SEED)
    drawn: list[float] = []
    for _ in range(RESAMPLES):
        some = rows[rng.integers(len(rows), size=len(rows))]
        losses, steps, got, kept = some[:, :4].sum(axis=0)
        rate = rng.gamma(losses + 0.5) / max(steps, 1.0)
        drawn.append(rng.binomial(n, left(rate, got / max(kept, 1.0), some[:, 4])) / n)
    low, high = (float(end) for end in np.quantile(drawn, (0.025, 0.975)))
    middle = left(found.rate, found.sound, rows[:, 4])
    return Forecast(found.task, length, each, n, low, middle, high)


def predict(
    folder: Path, wanted: Mapping[int, int], *, longest: int
) -> tuple[list[Hazard], list[Forecast]]:
    """Hazards of a benchmark's folder, by task and length and of each task, and what they say of lengths. Blocks.

    A task whose answers hang on several notes is left out: only the answer is followed through the memories, so what
    became of the other notes is not known.

    Args:
        folder: what `memagent-bench notes --nested` wrote.
        wanted: lengths to be predicted, in tokens, and how many samples of each are to be read.
        longest: what is longer is left out of the hazard.

    Raises:
        ConfigError: no samples, no memory ever held anything, or no task has one note for an answer.
        StoreError: the folder has no records or no runs.
    """
    by_task: defaultdict[str, list[Trace]] = defaultdict(list)
    for trace in diagnose(folder).traces:
        record = trace.record
        if record.system == SYSTEM and record.length <= longest:
            by_task[record.task].append(trace)
    if not by_task:
        raise ConfigError(f"{str(folder)!r} has no answered sample of at most {longest} tokens")
    whole = {
        task: traces
        for task, traces in sorted(by_task.items())
        if all(len(_needed(one.record)) == 1 for one in traces)
    }
    if not whole:
        raise ConfigError(
            f"the answers of {', '.join(sorted(by_task))} hang on several notes each, of which only the answer is "
            f"followed: give a folder with a task such as 'once' or 'last'"
        )
    hazards: list[Hazard] = []
    forecasts: list[Forecast] = []
    for traces in whole.values():
        for length in sorted({one.record.length for one in traces}):
            of_length = [one for one in traces if one.record.length == length]
            if sum(one.risk for one in of_length):
                hazards.append(fit(of_length))
        hazards.append(fit(traces))
        forecasts += [forecast(traces, length, n) for length, n in wanted.items()]
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


def _counted(traces: Sequence[Trace]) -> tuple[float, float, float, float, float]:
    """A sample at all lengths: losses, steps, right answers and answers without a loss, share behind its note."""
    kept = [trace.got for trace in traces if trace.fate is not Fate.LOST]
    lost, steps = len(traces) - len(kept), sum(trace.risk for trace in traces)
    record = max((trace.record for trace in traces), key=lambda record: record.length)
    (note,) = _needed(record)
    return lost, steps, sum(kept), len(kept), 1 - note.start / record.chars


def _needed(record: Record) -> list[Evidence]:
    """The notes that an answer hangs on."""
    return [place for place in record.evidence if place.supports]
