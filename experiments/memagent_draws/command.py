"""`python -m memagent_draws`: trains the arms that are missing, and prints the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from memagent.errors import ConfigError
from memagent_train.cli.going import Going, training

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
                place = f"{seed}-large" if large else str(seed)
                perform(out / place, name, seed=seed, large=large)
    for line in table(out):
        typer.echo(line)


def table(out: Path) -> list[str]:
    """The table of everything measured in a folder, in Markdown.

    `Value kept`: of the summaries whose context showed the value, the share that says it, at each logged step;
    `Overlong`: the share of overlong sessions in the last ten steps.
    """
    from memagent_draws.arms import ARMS, FIGURES
    from memagent_draws.kept import count_kept, overlong_share

    titles = ("Arm", "Seed", "Right before", "Right after", "Value kept", "Overlong")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name, arm in ARMS.items():
        for file in sorted(out.glob(f"*/{name}/{FIGURES}")):
            found = json.loads(file.read_text(encoding="utf-8"))
            steps = sorted(found, key=int)
            before, after = (
                f"{one['mean']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"
                for one in (found[steps[0]], found[steps[-1]])
            )
            logs = sorted((file.parent / "rollouts").glob("*.parquet"))
            counts = [count for count in map(count_kept, logs) if count.all]
            kept = ", ".join(f"{count.kept / count.all:.2f}" for count in counts) or "-"
            share = overlong_share(file.parent)
            overlong = "-" if share is None else f"{share:.2f}"
            cells = (arm.says, file.parts[-3], before, after, kept, overlong)
            lines.append(f"| {' | '.join(cells)} |")
    return lines
