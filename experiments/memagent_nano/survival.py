"""How many answers a constant hazard leaves right in longer documents: said before they are read, compared after."""

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
"""Share of answers that a hazard may cost."""
RESAMPLES = 4000
SEED = 20261122
"""Of them."""


@dataclass(frozen=True)
class Hazard:
    """What was read says of a kind of question."""

    system: str
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
    """What would be right if nothing were ever lost: the share of documents whose memory held what was wanted, times
    the share of right answers among those that did not lose it. A forecast takes it to be the same at all lengths; the
    hazards of single lengths show whether it is."""
    bearable: float
    """The hazard that costs `LOSS` of the answers at the longest of the lengths: -ln(1 - LOSS) / chunks behind the
    note on average. It is a little less than what does, as notes do not all stand at the average."""


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
    """With `high`: the 95% interval of the mean."""
    mean: float
    high: float


def fit(readings: Sequence[Trial]) -> Hazard:
    """The hazard of one task under one system, all lengths together.

    Raises:
        ConfigError: no memory held anything.
    """
    task = readings[0].task
    risk = diagnose.Hazard(sum(one.lost for one in readings), sum(one.risk for one in readings))
    if risk.rate is None or risk.interval is None:
        raise ConfigError(f"{task}: no memory held what was wanted; nothing is at risk")
    lengths = tuple(sorted({one.length for one in readings}))
    low, high = risk.interval
    behind = mean(one.chunks * (one.behind or 0.0) for one in readings if one.length == lengths[-1])
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
    """What a constant hazard h leaves: sound x mean over samples of (1 - h) ** steps.

    Steps are the chunks behind the note that a sample needs; nested samples have it at the same share of every length.
    The interval is that of a bootstrap over samples (all lengths of one together) with h drawn from Jeffreys' gamma
    posterior, so that no losses do not mean no hazard, and with the chance of n samples on top.

    Args:
        readings: of one task, each with one note for an answer, at the lengths that were read.
        length: in tokens.
        n: samples that are to be read.

    Raises:
        ConfigError: no memory held anything.
    """
    found = fit(readings)
    longest = [one for one in readings if one.length == found.lengths[-1]]
    each = mean(one.chunks for one in longest) / found.lengths[-1] * length
    samples: defaultdict[tuple[int, int], list[Trial]] = defaultdict(list)
    for one in readings:
        samples[one.seed, one.index].append(one)
    rows = np.array([_count(of) for of in samples.values()])

    def average_left(rate: float, sound: float, shares: Array) -> float:
        return float(sound * np.mean((1 - min(rate, 1.0)) ** (each * shares)))

    rng = np.random.default_rng(SEED)
    drawn: list[float] = []
    for _ in range(RESAMPLES):
        some = rows[rng.integers(len(rows), size=len(rows))]
        losses, steps, right, kept, wrote, many = some[:, :6].sum(axis=0)
        rate = rng.gamma(losses + 0.5) / max(steps, 1.0)
        drawn.append(
            rng.binomial(n, average_left(rate, _sound(right, kept, wrote, many), some[:, 6])) / n
        )
    low, high = (float(end) for end in np.quantile(drawn, (0.025, 0.975)))
    middle = average_left(found.rate, found.sound, rows[:, 6])
    # Of many samples and a rare loss no draw may be as low as the mean.
    return Forecast(found.task, length, each, n, min(low, middle), middle, max(high, middle))


def hazards(readings: Sequence[Trial], *, longest: int | None = None) -> list[Hazard]:
    """Of each task and length, and of each task with several; of those at which a memory held what was wanted.

    Args:
        readings: of any systems.
        longest: what is longer is left out; None leaves nothing out.
    """
    found: list[Hazard] = []
    for of in _select_followed(readings, longest).values():
        lengths = sorted({one.length for one in of})
        parts = [[one for one in of if one.length == length] for length in lengths]
        every = (*parts, of) if len(parts) > 1 else parts
        found += [fit(part) for part in every if sum(one.risk for one in part)]
    return found


def predict(
    readings: Sequence[Trial], wanted: Mapping[int, int], *, longest: int
) -> tuple[list[Hazard], list[Forecast]]:
    """`hazards`, and what those of the tasks say of longer documents.

    A task whose answers hang on several notes is left out: only the answer is followed through the memories, so what
    became of the other notes is not known.

    Args:
        readings: those of system `memory` are taken.
        wanted: lengths to be predicted, in tokens, and how many samples of each are to be read.
        longest: what is longer is left out of the hazard.

    Raises:
        ConfigError: no samples, no memory ever held anything, or no task has one note for an answer.
    """
    own = [one for one in readings if one.system == SYSTEM]
    whole = _select_followed(own, longest)
    if not whole:
        raise ConfigError(
            f"there is no answered sample of at most {longest} tokens whose answer stands in one note: give readings "
            f"of a task such as 'once' or 'last'"
        )
    forecasts = [forecast(of, length, n) for of in whole.values() for length, n in wanted.items()]
    return hazards(own, longest=longest), forecasts


@dataclass(frozen=True)
class Point:
    """What was measured."""

    system: str
    task: str
    length: int
    chunks: float
    """Of a document, on average."""
    low: float
    mean: float
    high: float
    n: int
    less: Difference | None
    """Than at the shortest length, over the questions that were asked at both; None there, and where there are none."""


def points(readings: Sequence[Trial]) -> list[Point]:
    """Share of right answers by system, task and length, with Wilson's interval at 95%. No answer is a wrong one."""
    cells: defaultdict[tuple[str, str], defaultdict[int, list[Trial]]]
    cells = defaultdict(lambda: defaultdict(list))
    for one in readings:
        cells[one.system, one.task][one.length].append(one)
    found: list[Point] = []
    for (system, task), lengths in sorted(cells.items()):
        shortest = {(one.seed, one.index): one.score for one in lengths[min(lengths)]}
        for length, of in sorted(lengths.items()):
            right = estimate([[one.score for one in of]])
            asked = [(one.score, shortest.get((one.seed, one.index))) for one in of]
            gaps = [score - before for score, before in asked if before is not None]
            found.append(
                Point(
                    system,
                    task,
                    length,
                    mean(one.chunks for one in of),
                    right.low,
                    right.mean,
                    right.high,
                    len(of),
                    paired_difference([gaps]) if gaps and length > min(lengths) else None,
                )
            )
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


def _select_followed(
    readings: Sequence[Trial], longest: int | None
) -> dict[tuple[str, str], list[Trial]]:
    """What can be followed, of each system and task with one note for an answer."""
    found: defaultdict[tuple[str, str], list[Trial]] = defaultdict(list)
    for one in readings:
        if one.fate and (longest is None or one.length <= longest):
            found[one.system, one.task].append(one)
    return {
        key: of for key, of in sorted(found.items()) if all(one.behind is not None for one in of)
    }


def _count(
    readings: Sequence[Trial],
) -> tuple[float, float, float, float, float, float, float]:
    """A sample at all lengths.

    Returns:
        Losses, chunk steps at risk, right answers where what was wanted was held to the end, how often it was, how
        often it was held at all, readings, and the share of the longest document that is behind the note.
    """
    held = [one.score for one in readings if one.fate == Fate.HELD]
    losses = sum(one.lost for one in readings)
    steps = sum(one.risk for one in readings)
    longest = max(readings, key=lambda one: one.length)
    return (
        losses, steps, sum(held), len(held), len(held) + losses, len(readings), longest.behind or 0.0,
    )  # fmt: skip


def _sound(right: float, held: float, wrote: float, readings: float) -> float:
    """See `Hazard.sound`; the numbers are those of `_count`."""
    return wrote / readings * right / held if held else 0.0
