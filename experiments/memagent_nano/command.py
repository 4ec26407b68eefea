"""`python -m memagent_nano`: trains what is missing, measures it, and goes on where it was stopped."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from memagent.cli.output import plural
from memagent.errors import ConfigError
from memagent_nano.course import START, arms
from memagent_nano.direct import DIRECT
from memagent_nano.sizes import size_of
from memagent_nano.stages import TRUNK, Place, Stage, done, perform, python
from memagent_nano.work import Work, perform_all
from memagent_train.cli.going import Going, training
from memagent_train.runs.signals import interruptible

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
SizeName = Annotated[str, typer.Argument(metavar="SIZE", help="pico or nano.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder of all that is made.")]
Seeds = Annotated[str, typer.Option(metavar="LIST", help="Numbers with commas between: 0,1,2.")]
Only = Annotated[
    str,
    typer.Option(
        metavar="LIST", help="Stages with commas between. Default: all.", show_default=False
    ),
]
Jobs = Annotated[int, typer.Option(min=1, help="Processes at once, one core each.")]


@app.callback()
def root() -> None:
    """Train the small policies pico and nano from nothing, and measure what they can do.

    Commands can be interrupted: the same command goes on.
    """


@app.command()
def train(size: SizeName, out: Out, seeds: Seeds = "0", only: Only = "", jobs: Jobs = 2) -> None:
    """Train the stages that are not there yet, and those that they begin with."""
    with _told():
        from memagent_nano.material import make

        stages = arms(size)
        places = _places(size, out, seeds)
        needed = [stages[name] for name in _with_earlier(stages, _chosen(stages, only))]
        asked = [(place, stage) for stage in needed for place in _of(places, stage.name)]
        missing = [one for one in asked if not done(*one)]
        there = len(asked) - len(missing)
        typer.echo(f"{out}: {plural(len(missing), 'stage')} to train, {there} there already")
        make(places[0], {stage.lessons for _, stage in missing}, say=typer.echo)
        perform_all([_training(*one) for one in missing], jobs=jobs, say=typer.echo)


@app.command()
def measure(size: SizeName, out: Out, seeds: Seeds = "0", only: Only = "", jobs: Jobs = 2) -> None:
    """Have held-out documents answered by the policies that are there."""
    with _told():
        from memagent_nano.measure import measured

        stages = arms(size)
        names = [name for name in _chosen(stages, only) if name not in START]
        places = _places(size, out, seeds)
        asked = [(place, name) for name in names for place in _of(places, name)]
        found = [(place, name) for place, name in asked if done(place, stages[name])]
        if not found:
            raise ConfigError(f"{str(out)!r} has no policy to measure: train it first")
        if lacking := [one for one in asked if one not in found]:
            left_out = ", ".join(_title(*one) for one in lacking)
            typer.echo(f"not trained yet, left out: {left_out}")
        missing = [one for one in found if not measured(*one)]
        there = len(found) - len(missing)
        typer.echo(f"{out}: {len(missing)} policies to measure, {there} measured already")
        perform_all([_measuring(*one) for one in missing], jobs=jobs, say=typer.echo)


@app.command()
def report(size: SizeName, out: Out, seeds: Seeds = "0") -> None:
    """Gather what was measured: tables here, `results.json` and learning curves in the folder."""
    with _told():
        from memagent_nano import plots, results, tables

        places = _places(size, out, seeds)
        found = results.gather(places)
        if not found.measured:
            raise ConfigError(
                f"nothing was measured in {str(out)!r}: give the command `measure` first"
            )
        results.write(found, out / "results.json")
        plots.learning(found, out / "learning.png")
        of = size_of(size)
        for table in (
            tables.gates(found),
            tables.arms(found, of),
            tables.differences(found, of),
            tables.held_out(found, of),
            tables.kept(found),
        ):
            typer.echo(f"{table}\n")


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(help="What memagent-bench notes --nested wrote.")],
    lengths: Annotated[str, typer.Option(metavar="L,L,...", help="In tokens: 1m,4m.")],
    samples: Annotated[
        str, typer.Option(metavar="N,N,...", help="How many of each length are to be read: 60,12.")
    ],
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the forecasts go; not there yet.")
    ],
    longest: Annotated[
        str, typer.Option(metavar="L", help="What is longer is left out of the hazard.")
    ] = "256k",
) -> None:
    """Say how many answers the hazard of short documents leaves right in longer ones."""
    with _told():
        from memagent_bench.lengths import parse_lengths
        from memagent_nano import survival, tables

        if out.exists():
            raise ConfigError(f"{str(out)!r} is there: what was said before is not said again")
        (top,), asked = parse_lengths(longest), parse_lengths(lengths)
        parts = [part.strip() for part in samples.split(",")]
        many = [int(part) for part in parts if part.isascii() and part.isdecimal() and int(part)]
        if not len(asked) == len(parts) == len(many):
            raise ConfigError(
                f"--samples {samples!r}: give a number for each of the {len(asked)} lengths, such as 60,12"
            )
        wanted = dict(zip(asked, many, strict=True))
        hazards, forecasts = survival.predict(folder, wanted, longest=top)
        survival.write(hazards, forecasts, out)
        typer.echo(f"{tables.hazards(hazards)}\n\n{tables.forecasts(forecasts, [])}")


@app.command()
def lengths(
    folder: Annotated[Path, typer.Argument(help="What memagent-bench notes wrote.")],
    said: Annotated[Path, typer.Option(metavar="FILE", help="What `predict` wrote.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The curve, a PNG.")],
) -> None:
    """Compare what was measured with what was said before."""
    with _told():
        from memagent_bench.records import read_records
        from memagent_nano import plots, survival, tables

        points, forecasts = survival.points(read_records(folder)), survival.read(said)
        plots.survival(points, forecasts, out)
        typer.echo(tables.forecasts(forecasts, points))


@app.command()
def controls(
    folder: Annotated[Path, typer.Argument(help="What memagent-bench notes wrote.")],
    model: Annotated[Path, typer.Option(metavar="FOLDER", help="The policy that answered.")],
) -> None:
    """Ask a benchmark's questions again: with their memories, with none, and with other samples'."""
    with _told():
        from memagent_nano.controls import controls

        for (task, length), shares in controls(folder, model).items():
            for memory, found in shares.items():
                typer.echo(f"{task:8} {length:8} {memory:8} {_interval(found)}")


@app.command()
def cross(
    size: SizeName,
    out: Out,
    writer: Annotated[str, typer.Option(metavar="STAGE", help="Whose policy reads.")],
    answerer: Annotated[str, typer.Option(metavar="STAGE", help="Whose policy answers.")],
    seed: Annotated[int, typer.Option(help="Of the course.")] = 0,
) -> None:
    """Have documents read by one policy, and answered from its memories by another."""
    with _told():
        from memagent_nano.crossed import crossed

        place = _place(size, out, seed)
        policies = [_policy(place, stage) for stage in (writer, answerer)]
        for memory, found in crossed(place.size, *policies).items():
            typer.echo(f"{memory:26} {_interval(found)}")


@app.command()
def ship(
    size: SizeName,
    out: Out,
    stage: Annotated[str, typer.Option(metavar="NAME", help="Whose policy.")],
    to: Annotated[Path, typer.Option(metavar="DIR", help="A new folder: src/memagent/nano.")],
    seed: Annotated[int, typer.Option(help="Of the course.")] = 0,
) -> None:
    """Write a policy as the wheel carries it, in half precision."""
    with _told():
        from memagent_nano.ship import ship as write

        if stage not in arms(size):
            raise ConfigError(f"--stage {stage!r}: give one of {', '.join(arms(size))}")
        place = _place(size, out, seed)
        write(place, stage, to)
        typer.echo(f"{_title(place, stage)} is in {to}")


@app.command(hidden=True)
def measure_one(size: SizeName, out: Out, seed: int, stage: str) -> None:
    """Measure one policy: the gate, and all cells."""
    with _told():
        from memagent_nano.gate import gate
        from memagent_nano.kept import kept
        from memagent_nano.measure import cells, gate_file, kept_file
        from memagent_nano.measure import measure as answer

        place = _place(size, out, seed)
        for file, look in ((gate_file(place, stage), gate), (kept_file(place, stage), kept)):
            if stage != DIRECT and not file.is_file():
                file.write_text(json.dumps(look(place.size, place.policy(stage)), indent=1) + "\n")
        for cell in cells(place.size):
            typer.echo(cell.name)
            answer(place, stage, cell)


@app.command(hidden=True)
def sample_one(size: SizeName, out: Out, seed: int, stage: str, first: int, documents: int) -> None:
    """Roll documents out, for rejection sampling."""
    with _told():
        from memagent_nano.sampling import sample

        sample(_place(size, out, seed), stage, first, documents)


@app.command(hidden=True)
def gate_one(size: SizeName, out: Out, seed: int, stage: str) -> None:
    """Write down what a policy makes of documents, for stage `gated`."""
    with _told():
        from memagent_nano.gated import make

        make(_place(size, out, seed), stage)


@dataclass
class _Course(Going):
    """How a command here is gone on with."""

    def resume_command(self, run_id: str | None) -> str | None:
        """The command line again."""
        return shlex.join(["python", "-m", "memagent_nano", *sys.argv[1:]])


@contextmanager
def _told() -> Generator[None]:
    """Turns whatever ends a command into words on standard error and an exit code."""
    with training(_Course(json=False)), interruptible():
        yield


def _places(size: str, out: Path, seeds: str) -> list[Place]:
    """Where the courses of the seeds lie, each once."""
    parts = [part.strip() for part in seeds.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise ConfigError(
            f"--seeds {seeds!r}: give numbers from 0 on with commas between, such as 0,1,2"
        )
    return [_place(size, out, seed) for seed in dict.fromkeys(map(int, parts))]


def _place(size: str, out: Path, seed: int) -> Place:
    # Relative paths in settings are taken to be relative to the file of settings.
    return Place(out.resolve(), size_of(size), seed)


def _policy(place: Place, stage: str) -> Path:
    """The weights that a stage has left."""
    if not (place.policy(stage) / "config.json").is_file():
        raise ConfigError(
            f"stage {stage!r} has left no policy in {str(place.of(stage))!r}: train it first"
        )
    return place.policy(stage)


def _interval(found: Mapping[str, float]) -> str:
    return f"{found['mean']:.3f} [{found['low']:.3f}, {found['high']:.3f}] n={found['n']}"


def _of(places: list[Place], stage: str) -> list[Place]:
    """Where a stage is trained: once for all seeds, or for each."""
    return places[:1] if stage in TRUNK else places


def _chosen(stages: dict[str, Stage], only: str) -> list[str]:
    """The names that were asked for, in the order of the course."""
    wanted = {part.strip() for part in only.split(",")} if only else set(stages)
    if unknown := wanted - set(stages):
        raise ConfigError(
            f"--only names no stage {sorted(unknown)}: this size has {', '.join(stages)}"
        )
    return [name for name in stages if name in wanted]


def _with_earlier(stages: dict[str, Stage], wanted: Sequence[str]) -> list[str]:
    """The stages and all before them, in an order in which they can be done."""
    found: set[str] = set()
    for name in wanted:
        while name:
            found.add(name)
            name = stages[name].after
    return [name for name in stages if name in found]


def _title(place: Place, stage: str) -> str:
    return f"trunk {stage}" if stage in TRUNK else f"seed {place.seed} {stage}"


def _training(place: Place, stage: Stage) -> Work:
    log = None if stage.command == "new" else place.log(stage.name)
    return Work(
        _title(place, stage.name),
        lambda: perform(place, stage),
        log,
        lambda: not stage.after or (place.policy(stage.after) / "config.json").is_file(),
    )


def _measuring(place: Place, stage: str) -> Work:
    return Work(
        f"measuring {_title(place, stage)}",
        lambda: python(
            place, stage, "memagent_nano", "measure-one", place.size.name, str(place.seed), stage,
            "--out", str(place.root),
        ),
        place.log(stage),
    )  # fmt: skip
