"""The options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memagent.cli import options as opt

SETTINGS = "Settings"

Config = Annotated[Path, typer.Argument(metavar="CONFIG", help="Settings: a TOML file.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="A setting in the place of the file's, as in optimizer.learning_rate=1e-5; may be repeated.",
        rich_help_panel=SETTINGS,
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Where the run goes. A folder that was begun is gone on with.",
        rich_help_panel=opt.RUN,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Show the settings as they resolve, what a step takes, and the memory; begin nothing.",
        rich_help_panel=opt.RUN,
    ),
]
Checkpoint = Annotated[
    int | None,
    typer.Option(
        metavar="STEP",
        min=0,
        help="The checkpoint after this step. Default: the newest whole one.",
        show_default=False,
    ),
]
