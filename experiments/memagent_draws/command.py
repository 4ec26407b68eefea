"""`python -m memagent_draws`: trains the arms that are missing, and prints the table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated

import typer

from memagent.errors import ConfigError
from memagent_train.cli.going import Going, training

SIZE = "-large"
"""Suffix of a folder whose model has 0.5M weights."""
app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def command(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The folder of all output; a second run resumes.")
    ],
    seeds: Annotated[str, typer.Option(metavar="LIST", help="Such as 0,1,2.")] = "0",
    only: Annotated[
        str,
        typer.Option(metavar="LIST", help="Arms. Default: all but smol.", show_default=False),
    ] = "",
    large: Annotated[
        bool, typer.Option("--large", help="0.5M weights and 24 steps, in folders of their own.")
    ] = False,
) -> None:
    """Train a policy to play a game in a context that holds a third of it."""
    with training(Going()):
        from memagent_draws.arms import ARMS, LANGUAGE, perform

        names = only.split(",") if only else [n for n, arm in ARMS.items() if arm.start != LANGUAGE]
        if unknown := set(names) - set(ARMS):
            raise ConfigError(f"there is no arm {sorted(unknown)}; the arms are {', '.join(ARMS)}")
        for seed in map(int, seeds.split(",")):
            for name in names:
                place = f"{seed}{SIZE}" if large else str(seed)
                perform(out / place, name, seed=seed, large=large)
    for line in table(out):
        typer.echo(line)


def table(out: Path) -> list[str]:
    """Returns the table of everything measured in a folder, in Markdown: a row for each arm and size of the model.

    Reads only the figures, `SEED/ARM/figures.json`.

    With one seed, shares of right answers have their 95% intervals; with several, the lowest and the highest seed.
    `Value kept`: of the summaries whose context showed the value, the share that says it, at each logged step;
    `Overlong`: the share of overlong sessions in the last ten steps. Both are means over seeds.
    """
    from memagent_draws.arms import ARMS, FIGURES

    titles = ("Arm", "Seeds", "Right before", "Right after", "Value kept", "Overlong")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for size, says in (("", ""), (SIZE, ", 0.5M weights")):
        for name, arm in ARMS.items():
            files = sorted(out.glob(f"*/{name}/{FIGURES}"))
            files = [file for file in files if file.parts[-3].endswith(SIZE) == bool(size)]
            if files:
                lines.append(f"| {arm.says}{says} | {' | '.join(_cells(files))} |")
    return lines


def _cells(files: Sequence[Path]) -> Iterator[str]:
    """Yields the cells of an arm's row.

    Args:
        files: figures of each seed.
    """
    seeds = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    yield str(len(files))
    for end in (min, max):
        yield _spread(
            [right[end(right, key=int)] for right in (figures["right"] for figures in seeds)]
        )
    steps = zip(*(figures["kept"] for figures in seeds), strict=False)
    yield ", ".join(f"{mean(step):.2f}" for step in steps if None not in step) or "-"
    shares = [figures["overlong"] for figures in seeds if figures["overlong"] is not None]
    yield f"{mean(shares):.2f}" if shares else "-"


def _spread(estimates: Sequence[dict[str, float]]) -> str:
    if len(estimates) == 1:
        return "{mean:.3f} [{low:.3f}, {high:.3f}]".format(**estimates[0])
    means = [estimate["mean"] for estimate in estimates]
    return f"{mean(means):.3f} ({min(means):.3f}-{max(means):.3f})"
