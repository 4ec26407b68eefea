"""The commands, put together."""

from __future__ import annotations

from typing import Annotated

import typer

import memagent
from memagent.cli.session import show_warnings
from memagent_train.cli.evaluate import evaluate
from memagent_train.cli.export import export
from memagent_train.cli.grpo import config, grpo
from memagent_train.cli.sft import sft

EPILOG = (
    "Exit codes: 0 done; 1 training stopped, or an unforeseen error; 2 wrong usage, a bad setting or unusable data; "
    "4 a model fails; 5 the folder cannot be used; 130 interrupted; 143 terminated (the same command goes on); 141 "
    "nobody reads the output."
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
        print(f"memagent-train {memagent.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say the version.")
    ] = False,
) -> None:
    """Fine-tune memory agents, or agents of your own, with the classes that serve them.

    Try [b]memagent-train grpo recipes/single-gpu.toml --out DIR --dry-run[/]: it needs no GPU.
    """
    show_warnings()


app.command()(grpo)
app.command()(sft)
app.command()(config)
app.command("eval")(evaluate)
app.command()(export)
