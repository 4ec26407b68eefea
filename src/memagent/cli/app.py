"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import memagent
from memagent.cli.ask import NOT_ESTIMATED, Resume, ask, estimate, resume
from memagent.cli.demo import demo
from memagent.cli.exits import EXIT_CODES
from memagent.cli.options import command_of
from memagent.cli.probe import Probe, probe
from memagent.cli.runs import runs
from memagent.cli.session import show_warnings
from memagent.cli.setup import Ask
from memagent.cli.show import show

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog=EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"memagent {memagent.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, metavar="", help="Print the version."
        ),
    ] = False,
) -> None:
    """Let a small-context model read documents of any length.

    Start with [b]memagent demo[/], which needs no model; then
    [b]memagent ask book.txt "Who did it?" --model vllm:NAME[/].
    """
    show_warnings()


app.command("ask")(command_of(Ask, ask))
app.command("estimate")(command_of(Ask, estimate, without=NOT_ESTIMATED))
app.command("probe")(command_of(Probe, probe))
app.command("resume")(command_of(Resume, resume))
app.add_typer(runs, name="runs")
app.command()(show)
app.command()(demo)
