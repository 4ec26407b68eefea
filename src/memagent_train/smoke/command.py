"""`python -m memagent_train.smoke`: trains, prints the findings, and fails if a claim doesn't hold."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memagent.terminal import duration
from memagent_train.cli.going import Going, training

if TYPE_CHECKING:
    from memagent_train.smoke.findings import Findings

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
FAILED = 1


@app.command()
def command(
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="A new folder for all output. Default: a temporary one.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
) -> None:
    """Train a tiny model to carry a value through a memory: GRPO must help, and random rewards must not.

    Exit codes: 0 all claims hold; 1 one does not, or unexpected error; others as for memagent-train.
    """
    begun = time.monotonic()
    with training(Going()):
        from memagent_train.smoke.stages import smoke

        folder = Path(tempfile.mkdtemp(prefix="memagent-smoke-")) if out is None else out
        typer.echo(f"everything goes to {folder}")
        findings = smoke(folder, seed=seed, say=typer.echo)
    raise typer.Exit(tell(findings, time.monotonic() - begun))


def tell(findings: Findings, seconds: float) -> int:
    """Prints the findings, with the figures on the last line.

    Returns:
        The exit code.
    """
    typer.echo(f"== {duration(seconds)} in all")
    typer.echo(
        f"documents twice as long: before GRPO {findings.longer_before}, after GRPO {findings.longer_after}"
    )
    for claim, holds in findings.claims.items():
        typer.echo(f"{'holds ' if holds else 'FAILED'}  {claim}")
    typer.echo(findings.summary)
    return 0 if all(findings.claims.values()) else FAILED
