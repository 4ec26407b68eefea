"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import memagent
from memagent.cli.ask import ask, estimate
from memagent.cli.demo import demo
from memagent.cli.probe import probe
from memagent.cli.resume import resume
from memagent.cli.runs import runs
from memagent.cli.session import show_warnings
from memagent.cli.show import show

EPILOG = (
    "Exit codes: 0 answered; 1 an unforeseen error; 2 wrong usage or a bad setting; 3 the document cannot be read; "
    "4 the model fails; 5 the run store fails; 6 stopped without an answer (it can be resumed); 7 the demo's answer is "
    "wrong; 130 interrupted; 143 terminated; 141 nobody reads the output."
)

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"memagent {memagent.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """Read documents of any length through a memory of fixed size.

    Try [b]memagent demo[/]: it needs no model. Then [b]memagent ask book.txt "Who did it?" --model vllm:NAME[/].
    """
    show_warnings()


app.command()(ask)
app.command()(estimate)
app.command()(probe)
app.command()(resume)
app.add_typer(runs, name="runs")
app.command()(show)
app.command()(demo)
