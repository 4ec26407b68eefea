"""Options that several commands share."""

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
        help="Override a setting of the file, such as optimizer.learning_rate=1e-5; may be repeated.",
        rich_help_panel=SETTINGS,
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="Folder for the run; an existing one is resumed.",
        rich_help_panel=opt.RUN,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        metavar="",
        help="Print the resolved settings, and for grpo the cost of a step and the memory it needs, without training.",
        rich_help_panel=opt.RUN,
    ),
]
Checkpoint = Annotated[
    int | None,
    typer.Option(
        metavar="STEP",
        min=0,
        help="The checkpoint after this step. Default: the newest complete one.",
        show_default=False,
    ),
]


def check_file(out: Path | None, option: str) -> None:
    """Raises a `ConfigError` if a file can't be written, before anything is computed for it; folders may be missing."""
    from memagent.cli.setup import check_out

    while out is not None and not out.resolve().parent.exists():
        out = out.parent  # the first folder that would be made
    check_out(out, option=option)
