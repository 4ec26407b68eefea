"""Forecasts how many answers a constant hazard leaves right in longer documents: made before they are read."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean

import numpy as np

from memagent.errors import ConfigError
from memagent.tasks.statistics import Array, estimate
from memagent_bench import diagnose
from memagent_bench.diagnose.traces import Fate
from memagent_bench.significance import Difference, paired_difference
from memagent_nano.readings import Trial

SYSTEM = "memory"
LOSS = 0.05
"""Share of answers that a bearable hazard costs."""
RESAMPLES = 4000
SEED = 20261122
"""Seed of the draws."""


@dataclass(frozen=True)
class Hazard:
    """The hazard of a kind of question, from readings."""

    system: str
    task: str
    lengths: tuple[int, ...]
    """Lengths that were read."""
    losses: int
    steps: int
    """Chunk steps at risk."""
    low: float
    rate: float
    """Losses / steps."""
    high: float
    """Upper end, with `low`, of the exact 95% interval, as if steps were independent."""
    sound: float
    """Share right if nothing were ever lost: the share of documents whose memory held what was wanted, times the share
    of right answers among those that didn't lose it. A forecast assumes that it is the same at all lengths; the hazards
    of single lengths show whether it is."""
    bearable: float
    """The hazard that costs `LOSS` of the answers at the longest of the lengths: -ln(1 - LOSS) / chunks after the note
    on average. It is slightly less than the true one, as not all notes are at the average depth."""


@dataclass(frozen=True)
class Forecast:
    """Forecast of the share of right answers at a length."""

    task: str
    length: int
    """Length in tokens of the length tokenizer."""
    chunks: float
    """Average chunks of a document."""
    n: int
    """Samples to be measured."""
    low: float
    """Lower end, with `high`, of the 95% interval of the mean."""
    mean: float
    high: float


def fit(readings: Sequence[Trial]) -> Hazard:
    """Fits the hazard of one task under one system, all lengths together.

    Raises:
        ConfigError: no memory held what was wanted.
    """
    task = readings[0].task
    risk = diagnose.Hazard(
        sum(trial.lost for trial in readings), sum(trial.risk for trial in readings)
    )
    if risk.rate is None or risk.interval is None:
        raise ConfigError(f"{task}: no memory held what was wanted; nothing is at risk")
    lengths = tuple(sorted({trial.length for trial in readings}))
    low, high = risk.interval
    behind = mean(
        trial.chunks * (trial.behind or 0.0) for trial in readings if trial.length == lengths[-1]
    )
    return Hazard(
        readings[0].system,
        task,
        lengths,
        risk.losses,
        risk.steps,
        low,
        risk.rate,
        high,
        _sound(*_count(readings)[2:6]),
        -math.log(1 - LOSS) / behind if behind else math.inf,
    )


def forecast(readings: Sequence[Trial], length: int, n: int) -> Forecast:
    """Forecasts what a constant hazard h leaves: sound x mean over samples of (1 - h) ** steps.

    Steps are the chunks after the note that a sample needs; nested samples have it at the same share of every length.
    The interval is that of a bootstrap over samples (all lengths of one together) with h drawn from Jeffreys' gamma
    posterior, so that no losses don't mean no hazard, plus the sampling error of n samples.

    Args:
        readings: readings of one task, each with one note for an answer, at the lengths that were read.
        length: in tokens.
        n: number of samples to be read.

    Raises:
        ConfigError: no memory held what was wanted.
    """
    hazard = fit(readings)
    longest = [trial for trial in readings if trial.length == hazard.lengths[-1]]
    each = mean(trial.chunks for trial in longest) / hazard.lengths[-1] * length
    samples: defaultdict[tuple[int, int], list[Trial]] = defaultdict(list)
    for trial in readings:
        samples[trial.seed, trial.index].append(trial)
    rows = np.array([_count(group) for group in samples.values()])

    def average_left(rate: float, sound: float, shares: Array) -> float:
        return float(sound * np.mean((1 - min(rate, 1.0)) ** (each * shares)))

    rng = np.random.default_rng(SEED)
    drawn: list[float] = []
    for _ in range(RESAMPLES):
        resample = rows[rng.integers(len(rows), size=len(rows))]
        losses, steps, right, held, wrote, many = resample[:, :6].sum(axis=0)
        rate = rng.gamma(losses + 0.5) / max(steps, 1.0)
        drawn.append(
            rng.binomial(n, average_left(rate, _sound(right, held, wrote, many), resample[:, 6]))
            / n
        )
    low, high = (float(end) for end in np.quantile(drawn, (0.025, 0.975)))
    middle = average_left(hazard.rate, hazard.sound, rows[:, 6])
    # With many samples and a rare loss, no draw may be as low as the mean.
    return Forecast(hazard.task, length, each, n, min(low, middle), middle, max(high, middle))


def hazards(readings: Sequence[Trial], *, longest: int | None = None) -> list[Hazard]:
    """Returns the hazards per task and length, and per task with several lengths, if a memory held what was wanted.

    Args:
        readings: readings of any systems.
        longest: longer documents are left out; None leaves nothing out.
    """
    fits: list[Hazard] = []
    for group in _select_followed(readings, longest).values():
        lengths = sorted({trial.length for trial in group})
        parts = [[trial for trial in group if trial.length == length] for length in lengths]
        every = (*parts, group) if len(parts) > 1 else parts
        fits += [fit(part) for part in every if sum(trial.risk for trial in part)]
    return fits


def predict(
    readings: Sequence[Trial], wanted: Mapping[int, int], *, longest: int
) -> tuple[list[Hazard], list[Forecast]]:
    """Returns `hazards`, and the forecasts of the tasks' hazards for longer documents.

    Leaves out tasks whose answers depend on several notes: only the answer is followed through the memories, so
    the fate of the other notes is unknown.

    Args:
        readings: readings; only those of system `memory` are used.
        wanted: lengths to predict, in tokens -> number of samples to be read.
        longest: longer documents are left out of the hazard.

    Raises:
        ConfigError: no samples, no memory ever held anything, or no task has one note for an answer.
    """
    trials = [trial for trial in readings if trial.system == SYSTEM]
    groups = _select_followed(trials, longest)
    if not groups:
        raise ConfigError(
            f"there is no answered sample of at most {longest} tokens whose answer stands in one note: give readings "
            f"of a task such as 'once' or 'last'"
        )
    forecasts = [
        forecast(group, length, n) for group in groups.values() for length, n in wanted.items()
    ]
    return hazards(trials, longest=longest), forecasts


@dataclass(frozen=True)
class Point:
    """A measurement at one length."""

    system: str
    task: str
    length: int
    chunks: float
    """Average chunks of a document."""
    low: float
    mean: float
    high: float
    n: int
    less: Difference | None
    """Difference to the shortest length, over the questions asked at both; None there, and if there are none."""


def points(readings: Sequence[Trial]) -> list[Point]:
    """Returns right answers by system, task and length, with Wilson's interval at 95%. No answer counts as wrong."""
    cells: defaultdict[tuple[str, str], defaultdict[int, list[Trial]]]
    cells = defaultdict(lambda: defaultdict(list))
    for trial in readings:
        cells[trial.system, trial.task][trial.length].append(trial)
    rows: list[Point] = []
    for (system, task), lengths in sorted(cells.items()):
        shortest = {(trial.seed, trial.index): trial.score for trial in lengths[min(lengths)]}
        for length, group in sorted(lengths.items()):
            right = estimate([[trial.score for trial in group]])
            pairs = [(trial.score, shortest.get((trial.seed, trial.index))) for trial in group]
            gaps = [score - base for score, base in pairs if base is not None]
            rows.append(
                Point(
                    system,
                    task,
                    length,
                    mean(trial.chunks for trial in group),
                    right.low,
                    right.mean,
                    right.high,
                    len(group),
                    paired_difference([gaps]) if gaps and length > min(lengths) else None,
                )
            )
    return rows


def write(hazards: Sequence[Hazard], forecasts: Sequence[Forecast], file: Path) -> None:
    """Writes JSON that is committed before the long documents are read."""
    plain = {
        "hazards": [asdict(entry) for entry in hazards],
        "forecasts": [asdict(entry) for entry in forecasts],
    }
    file.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


def read(file: Path) -> list[Forecast]:
    """Reads the forecasts that `write` wrote."""
    return [
        Forecast(**entry) for entry in json.loads(file.read_text(encoding="utf-8"))["forecasts"]
    ]


def _select_followed(
    readings: Sequence[Trial], longest: int | None
) -> dict[tuple[str, str], list[Trial]]:
    """Returns the readings that can be followed, by system and task with one note for an answer."""
    groups: defaultdict[tuple[str, str], list[Trial]] = defaultdict(list)
    for trial in readings:
        if trial.fate and (longest is None or trial.length <= longest):
            groups[trial.system, trial.task].append(trial)
    return {
        key: group
        for key, group in sorted(groups.items())
        if all(trial.behind is not None for trial in group)
    }


def _count(
    readings: Sequence[Trial],
) -> tuple[float, float, float, float, float, float, float]:
    """Counts a sample at all lengths.

    Returns:
        Losses, chunk steps at risk, sum of scores where what was wanted was held to the end, number of these readings,
        number that ever held it, number of all readings, and the share of the longest document after the note.
    """
    held = [trial.score for trial in readings if trial.fate == Fate.HELD]
    losses = sum(trial.lost for trial in readings)
    steps = sum(trial.risk for trial in readings)
    longest = max(readings, key=lambda trial: trial.length)
    return (
        losses, steps, sum(held), len(held), len(held) + losses, len(readings), longest.behind or 0.0,
    )  # fmt: skip


def _sound(right: float, held: float, wrote: float, readings: float) -> float:
    """Computes `Hazard.sound` from the numbers of `_count`."""
    return wrote / readings * right / held if held else 0.0
