"""`python -m memagent_smol`: makes what `smol` imitates, and trains it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memagent.texts import plural

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder for everything that is made.")]


@app.callback()
def root() -> None:
    """Train `smol`, a language model of 135M weights, to keep a memory.

    The folder that MEMAGENT_DATA names must hold SQuAD's development set and HotpotQA's, as memagent-bench reads them.
    """


@app.command()
def lessons(
    out: Out,
    documents: Annotated[int, typer.Option(min=1, help="Documents that an expert reads.")] = 1200,
    seed: Annotated[int, typer.Option(min=0, help="Of the documents.")] = 0,
    level: Annotated[
        str, typer.Option(help="easy: nothing looks like what is asked for; or full.")
    ] = "full",
) -> None:
    """Write an expert's conversations for memagent-train sft to imitate: about 1,000 tokens a document."""
    from memagent.errors import ConfigError
    from memagent.models.smol import smol_folder
    from memagent.tokens import load_counter
    from memagent_bench.length_tokens import length_counter
    from memagent_bench.options import DataOptions
    from memagent_nano.asked import told
    from memagent_smol.lessons import LEVELS, Teacher, write
    from memagent_smol.sources import divide

    with told():
        if level not in LEVELS:
            raise ConfigError(f"--level {level!r}: give one of {', '.join(LEVELS)}")
        divide(DataOptions(counter=length_counter(None)), out / "sources")
        teacher = Teacher(out / "sources", load_counter(str(smol_folder())), seed, LEVELS[level])
        file = out / f"lessons-{level}-{seed}.jsonl"
        count = write(teacher.lessons(documents), file)
        typer.echo(f"{file}: {plural(count, 'conversation')} from {plural(documents, 'document')}")
