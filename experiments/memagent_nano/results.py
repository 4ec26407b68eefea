"""The measurements of a course, gathered from its folders into one file that is kept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from memagent.errors import ConfigError
from memagent_nano.course import arms
from memagent_nano.measure import gate_file, is_measured, kept_file
from memagent_nano.stages import MEASURED, TRUNK, Place, is_done
from memagent_train.runs import metrics

T = TypeVar("T")


@dataclass(frozen=True)
class CellResult:
    """One policy on the samples of one cell."""

    seed: int
    stage: str
    cell: str
    rewards: tuple[float, ...]
    """Rewards in the order of the samples, which are the same for every policy."""

    @property
    def mean(self) -> float:
        """Mean of the rewards."""
        return sum(self.rewards) / len(self.rewards)


@dataclass(frozen=True)
class Curve:
    """Reward of held-out samples over a training by reinforcement learning.

    A training with random rewards has no curve: its evaluations give random rewards too.
    """

    seed: int
    stage: str
    steps: tuple[int, ...]
    means: tuple[float, ...]


@dataclass(frozen=True)
class Results:
    """All measurements of a course."""

    size: str
    """Name of the policies' size."""
    measured: tuple[CellResult, ...]
    curves: tuple[Curve, ...]
    gates: dict[str, dict[str, dict[str, float]]]
    """`seed-0/shown` -> kind of reply -> share that is exactly right."""
    kept: dict[str, dict[str, dict[str, float]]]
    """`seed-0/shown` -> kind of entry -> share that is kept, or made up."""
    hours: dict[str, float]
    """`seed-0/shown` -> hours of its training, on one core beside others."""


def gather(places: Sequence[Place]) -> Results:
    """Reads the courses of all seeds, as far as their stages are done and completely measured.

    Args:
        places: one or more, of one size.
    """
    measured: list[CellResult] = []
    curves: list[Curve] = []
    gates: dict[str, dict[str, dict[str, float]]] = {}
    kept: dict[str, dict[str, dict[str, float]]] = {}
    hours: dict[str, float] = {}
    for place in places:
        for stage in arms(place.size.name).values():
            if not is_done(place, stage) or (stage.name in TRUNK and place is not places[0]):
                continue
            course = f"trunk{place.seed or ''}" if stage.name in TRUNK else f"seed-{place.seed}"
            name = f"{course}/{stage.name}"
            if is_measured(place, stage.name):
                measured += _read_measured(place, stage.name)
            for figures, file in ((gates, gate_file), (kept, kept_file)):
                with suppress(FileNotFoundError):
                    figures[name] = json.loads(file(place, stage.name).read_text(encoding="utf-8"))
            lines = metrics.read(place.run(stage.name) / "metrics.jsonl")
            if lines:
                hours[name] = round(sum(line.get("seconds", 0.0) for line in lines) / 3600, 3)
            curves += _curves(place.seed, stage.name, lines)
    return Results(places[0].size.name, tuple(measured), tuple(curves), gates, kept, hours)


def write(results: Results, file: Path) -> None:
    """Writes the results as JSON, one policy and cell per line."""
    plain = asdict(results)
    parts = {
        key: "[\n" + ",\n".join(json.dumps(row) for row in value) + "\n]"
        if isinstance(value, tuple)
        else json.dumps(value, indent=1)
        for key, value in plain.items()
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    text = "{" + ",\n".join(f'"{key}": {text}' for key, text in parts.items()) + "}\n"
    file.write_text(text, encoding="utf-8")


def merge(parts: Sequence[Results]) -> Results:
    """Merges the results of several folders; if two have the same policy, the later one wins.

    Raises:
        ConfigError: their sizes differ.
    """
    sizes = {part.size for part in parts}
    if len(sizes) > 1:
        raise ConfigError(
            f"results of {' and of '.join(sorted(sizes))} are not put together: give those of one size"
        )
    measured: dict[tuple[str, int], list[CellResult]] = {}
    for part in parts:
        of_part: dict[tuple[str, int], list[CellResult]] = {}
        for entry in part.measured:
            of_part.setdefault((entry.stage, entry.seed), []).append(entry)
        measured |= of_part
    curves = {(entry.stage, entry.seed): entry for part in parts for entry in part.curves}
    return Results(
        sizes.pop(),
        tuple(
            entry
            for key in sorted(measured)
            for entry in sorted(measured[key], key=lambda entry: entry.cell)
        ),
        tuple(curves[key] for key in sorted(curves)),
        _by_name(part.gates for part in parts),
        _by_name(part.kept for part in parts),
        _by_name(part.hours for part in parts),
    )


def _by_name(parts: Iterable[Mapping[str, T]]) -> dict[str, T]:
    """Merges them, sorted by name; the last one of a name wins."""
    return dict(sorted({name: value for part in parts for name, value in part.items()}.items()))


def read(file: Path) -> Results:
    """Reads what `write` wrote.

    Raises:
        ConfigError: there is no such file, or it has another form.
    """
    try:
        return _read(json.loads(file.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(
            f"cannot read {str(file)!r} ({error.strerror}): give a results.json of `report`"
        ) from error
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(
            f"{str(file)!r} does not hold results ({error!r}): give a results.json of `report`"
        ) from error


def _read(plain: Any) -> Results:
    return Results(
        str(plain["size"]),
        tuple(
            CellResult(**{**entry, "rewards": tuple(entry["rewards"])})
            for entry in plain["measured"]
        ),
        tuple(
            Curve(entry["seed"], entry["stage"], tuple(entry["steps"]), tuple(entry["means"]))
            for entry in plain["curves"]
        ),
        plain["gates"],
        plain["kept"],
        plain["hours"],
    )


def _read_measured(place: Place, stage: str) -> Iterator[CellResult]:
    for file in sorted((place.of(stage) / MEASURED).glob("*.jsonl")):
        lines = file.read_text(encoding="utf-8").splitlines()
        rewards = tuple(_reward(json.loads(line)) for line in lines)
        yield CellResult(place.seed, stage, file.stem, rewards)


def _curves(seed: int, stage: str, lines: Sequence[dict[str, Any]]) -> Iterator[Curve]:
    """Yields the curve of a training, if it has one."""
    evaluations = [line for line in lines if metrics.EVALUATION in line]
    if evaluations:
        means = tuple(next(iter(line[metrics.EVALUATION].values()))["mean"] for line in evaluations)
        yield Curve(seed, stage, tuple(int(line["step"]) for line in evaluations), means)


def _reward(line: dict[str, Any]) -> float:
    """Returns the reward; an answer without one counts as wrong, which never happened in the published results."""
    return float(line["reward"] or 0.0)
