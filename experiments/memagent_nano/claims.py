"""Commands that test claims, and ship what passed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from memagent.errors import ConfigError
from memagent.texts import plural
from memagent_nano.asked import Out, SizeName, place_of, report_end, title_of
from memagent_nano.course import arms
from memagent_nano.direct import DIRECT

app = typer.Typer()


Readings = Annotated[Path, typer.Argument(metavar="FILE", help="What `follow` wrote.")]


@app.command()
def follow(
    folder: Annotated[Path, typer.Argument(help="What memagent-bench notes --nested wrote.")],
    policy: Annotated[Path, typer.Option(metavar="FOLDER", help="Whose weights read.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where readings are added.")],
) -> None:
    """Keep what became of each document of a benchmark's folder: the right answer, and where it was lost."""
    with report_end():
        from memagent_nano import readings

        new = readings.follow(folder, policy)
        trials = readings.keep(new, out)
        typer.echo(f"{out}: {plural(len(new), 'document')} of {folder}, {len(trials)} in all")


@app.command()
def predict(
    file: Readings,
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
    with report_end():
        from memagent_bench.lengths import parse_length, parse_lengths
        from memagent_nano import readings, survival, tables

        if out.exists():
            raise ConfigError(f"{str(out)!r} is there: what was said before is not said again")
        top, targets = parse_length(longest), parse_lengths(lengths)
        parts = [part.strip() for part in samples.split(",")]
        many = [int(part) for part in parts if part.isascii() and part.isdecimal() and int(part)]
        if not len(targets) == len(parts) == len(many):
            raise ConfigError(
                f"--samples {samples!r}: give a number for each of the {len(targets)} lengths, such as 60,12"
            )
        wanted = dict(zip(targets, many, strict=True))
        hazards, forecasts = survival.predict(readings.read(file), wanted, longest=top)
        survival.write(hazards, forecasts, out)
        typer.echo(f"{tables.hazards(hazards)}\n\n{tables.forecasts(forecasts, [])}")


@app.command()
def lengths(
    file: Readings,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where pictures go.")],
    said: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What `predict` wrote: to be compared.")
    ] = None,
) -> None:
    """Show what was measured, beside what was said before: tables here, a curve and a map by depth in the folder."""
    with report_end():
        from memagent_nano import plots, readings, survival, tables

        trials, forecasts = readings.read(file), survival.read(said) if said else []
        points = survival.points(trials)
        plots.survival(points, forecasts, out / "survival.png")
        plots.depths(trials, out / "depths.png")
        typer.echo(tables.forecasts(forecasts, points))
        if hazards := survival.hazards(trials):
            typer.echo(f"\n{tables.hazards(hazards)}")


@app.command()
def page(
    file: Annotated[Path, typer.Argument(metavar="PAGE", help="docs/nano.md.")],
    results: Annotated[
        Path, typer.Option(metavar="DIR", help="What `report` and `follow` wrote, by its names.")
    ],
) -> None:
    """Write tables and pictures of kept results into the page that shows them; its sentences stay as they are."""
    with report_end():
        from memagent_nano.page import draw, renew, tables_of

        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read {str(file)!r} ({error}): give docs/nano.md") from error
        file.write_text(renew(text, tables_of(results)), encoding="utf-8")
        draw(results, file.parent / "images")
        typer.echo(f"{file} shows what is in {results}: do its sentences still hold?")


@app.command()
def controls(
    folder: Annotated[Path, typer.Argument(help="What memagent-bench notes wrote.")],
    model: Annotated[Path, typer.Option(metavar="FOLDER", help="The policy that answered.")],
) -> None:
    """Ask a benchmark's questions again: with their memories, with none, and with other samples'."""
    with report_end():
        from memagent_nano.controls import controls

        for (task, length), shares in controls(folder, model).items():
            for memory, share in shares.items():
                typer.echo(f"{task:12} {length:8} {memory:8} {_interval(share)}")


@app.command()
def cross(
    size: SizeName,
    out: Out,
    writer: Annotated[str, typer.Option(metavar="STAGE", help="Whose policy reads.")],
    answerer: Annotated[str, typer.Option(metavar="STAGE", help="Whose policy answers.")],
    seed: Annotated[int, typer.Option(help="Of the course.")] = 0,
) -> None:
    """Have documents read by one policy, and answered from its memories by another."""
    with report_end():
        from memagent_nano.crossed import cross

        place = place_of(size, out, seed)
        policies = [place.find_trained(stage) for stage in (writer, answerer)]
        for memory, share in cross(place.size, *policies).items():
            typer.echo(f"{memory:26} {_interval(share)}")


@app.command()
def ship(
    size: SizeName,
    out: Out,
    stage: Annotated[str, typer.Option(metavar="NAME", help="Whose policy.")],
    to: Annotated[Path, typer.Option(metavar="DIR", help="A new folder: src/memagent/nano.")],
    seed: Annotated[int, typer.Option(help="Of the course.")] = 0,
) -> None:
    """Write a policy as the wheel carries it, in half precision."""
    with report_end():
        from memagent_nano.ship import ship as write

        if stage not in arms(size):
            raise ConfigError(f"--stage {stage!r}: give one of {', '.join(arms(size))}")
        if stage == DIRECT:
            raise ConfigError(
                f"--stage {stage!r} has no memory, and nothing here reads with it: give another"
            )
        place = place_of(size, out, seed)
        write(place, stage, to)
        typer.echo(f"{title_of(place, stage)} is in {to}")


def _interval(share: Mapping[str, float]) -> str:
    return f"{share['mean']:.3f} [{share['low']:.3f}, {share['high']:.3f}] n={share['n']}"
