"""`python -m memagent_nano`: trains what is missing, measures it, and resumes after an interruption."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from memagent.errors import ConfigError
from memagent.texts import plural
from memagent_nano import claims, processes
from memagent_nano.asked import Out, SizeName, place_of, places_of, report_end, title_of
from memagent_nano.course import arms
from memagent_nano.direct import DIRECT
from memagent_nano.sizes import size_of
from memagent_nano.stages import TRUNK, Place, Stage, is_done, perform
from memagent_nano.work import Work, perform_all

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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

    Commands can be interrupted: the same command resumes.
    """


@app.command()
def train(size: SizeName, out: Out, seeds: Seeds = "0", only: Only = "", jobs: Jobs = 2) -> None:
    """Train the stages that are not there yet, and those that they begin with where these are not."""
    with report_end():
        from memagent_nano.material import make

        stages = arms(size)
        places = places_of(size, out, seeds)
        pairs = _with_earlier(places, stages, _choose(stages, only))
        missing = [pair for pair in pairs if not is_done(*pair)]
        count = len(pairs) - len(missing)
        typer.echo(f"{out}: {plural(len(missing), 'stage')} to train, {count} there already")
        make(places[0], {stage.lessons for _, stage in missing}, say=typer.echo)
        perform_all([_training(*pair) for pair in missing], jobs=jobs, say=typer.echo)


@app.command()
def measure(size: SizeName, out: Out, seeds: Seeds = "0", only: Only = "", jobs: Jobs = 2) -> None:
    """Have held-out documents answered by the policies that are there."""
    with report_end():
        from memagent_nano.measure import is_measured
        from memagent_nano.tables import ABOUT

        stages = arms(size)
        names = [name for name in _choose(stages, only) if only or name in ABOUT]
        places = places_of(size, out, seeds)
        pairs = [(place, name) for name in names for place in _of(places, name)]
        policies = [(place, name) for place, name in pairs if is_done(place, stages[name])]
        if not policies:
            raise ConfigError(f"{str(out)!r} has no policy to measure: train it first")
        if lacking := [pair for pair in pairs if pair not in policies]:
            left_out = ", ".join(title_of(*pair) for pair in lacking)
            typer.echo(f"not trained yet, left out: {left_out}")
        missing = [pair for pair in policies if not is_measured(*pair)]
        count = len(policies) - len(missing)
        typer.echo(f"{out}: {len(missing)} policies to measure, {count} measured already")
        perform_all([_measuring(*pair) for pair in missing], jobs=jobs, say=typer.echo)


@app.command()
def report(
    size: SizeName,
    out: Out,
    seeds: Seeds = "0",
    known: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Results of other folders, to be added; repeatable."),
    ] = None,
) -> None:
    """Gather what was measured: tables here, `results.json` and learning curves in the folder."""
    with report_end():
        from memagent_nano import plots, results, tables

        places = places_of(size, out, seeds)
        outcome = results.merge([*map(results.read, known or ()), results.gather(places)])
        if not outcome.measured:
            raise ConfigError(
                f"nothing was measured in {str(out)!r}: give the command `measure` first"
            )
        results.write(outcome, out / "results.json")
        if outcome.curves:
            plots.learning(outcome, out / "learning.png")
        for table in tables.make_tables(outcome, size_of(size)).values():
            typer.echo(f"{table}\n")


app.add_typer(claims.app)


@app.command(hidden=True)
def measure_one(size: SizeName, out: Out, seed: int, stage: str) -> None:
    """Measure one policy: the gate, and all cells."""
    with report_end():
        from memagent_nano.gate import gate
        from memagent_nano.kept import measure_kept
        from memagent_nano.measure import cells, gate_file, kept_file
        from memagent_nano.measure import measure as answer

        place = place_of(size, out, seed)
        for file, look in (
            (gate_file(place, stage), gate),
            (kept_file(place, stage), measure_kept),
        ):
            if stage != DIRECT and not file.is_file():
                file.write_text(
                    json.dumps(look(place.size, place.find_trained(stage)), indent=1) + "\n"
                )
        for cell in cells(place.size):
            typer.echo(cell.name)
            answer(place, stage, cell)


@app.command(hidden=True)
def sample_one(size: SizeName, out: Out, seed: int, stage: str, first: int, documents: int) -> None:
    """Roll documents out, for rejection sampling."""
    with report_end():
        from memagent_nano.sampling import sample

        sample(place_of(size, out, seed), stage, first, documents)


@app.command(hidden=True)
def gate_one(size: SizeName, out: Out, seed: int, stage: str) -> None:
    """Write down what a policy makes of documents, for stage `gated`."""
    with report_end():
        from memagent_nano.gated import make

        make(place_of(size, out, seed), stage)


def _of(places: list[Place], stage: str) -> list[Place]:
    """Returns the places where a stage is trained: once for all seeds, or for each."""
    return places[:1] if stage in TRUNK else places


def _choose(stages: dict[str, Stage], only: str) -> list[str]:
    """Returns the requested names, in the order of the course."""
    wanted = {part.strip() for part in only.split(",")} if only else set(stages)
    if unknown := wanted - set(stages):
        raise ConfigError(
            f"--only names no stage {sorted(unknown)}: this size has {', '.join(stages)}"
        )
    return [name for name in stages if name in wanted]


def _with_earlier(
    places: list[Place], stages: dict[str, Stage], wanted: Sequence[str]
) -> list[tuple[Place, Stage]]:
    """Returns the stages and their missing predecessors, in an order in which they can be run."""
    keys: set[tuple[int, str]] = set()
    for name in wanted:
        for place in _of(places, name):
            at = name
            while at:
                owner = places[0] if at in TRUNK else place
                keys.add((owner.seed, at))
                at = "" if is_done(owner, stages[at]) else stages[at].after
    return [
        (place, stage)
        for stage in stages.values()
        for place in _of(places, stage.name)
        if (place.seed, stage.name) in keys
    ]


def _training(place: Place, stage: Stage) -> Work:
    log = None if stage.command == "new" else place.log(stage.name)
    return Work(
        title_of(place, stage.name),
        lambda: perform(place, stage),
        log,
        lambda: not stage.after or (place.policy(stage.after) / "config.json").is_file(),
    )


def _measuring(place: Place, stage: str) -> Work:
    return Work(
        f"measuring {title_of(place, stage)}",
        lambda: processes.python(
            place.log(stage), "memagent_nano", "measure-one", place.size.name, str(place.seed), stage,
            "--out", str(place.root),
        ),
        place.log(stage),
    )  # fmt: skip
