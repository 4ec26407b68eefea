"""`python -m memagent_smol`: makes the lessons that `smol` imitates, and measures what it learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memagent_nano.asked import report_end

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
Adapter = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The policy's adapter. Default: the untrained model."),
]
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
    from memagent.texts import plural
    from memagent.tokens import load_counter
    from memagent_bench.length_tokens import length_counter
    from memagent_bench.options import DataOptions
    from memagent_engines.smol import smol_folder
    from memagent_smol.lessons import LEVELS, Teacher, write
    from memagent_smol.sources import divide

    with report_end():
        if level not in LEVELS:
            raise ConfigError(f"--level {level!r}: give one of {', '.join(LEVELS)}")
        divide(DataOptions(counter=length_counter(None)), out / "sources")
        teacher = Teacher(out / "sources", load_counter(str(smol_folder())), seed, LEVELS[level])
        file = out / f"lessons-{level}-{seed}.jsonl"
        count = write(teacher.lessons(documents), file)
        typer.echo(f"{file}: {plural(count, 'conversation')} from {plural(documents, 'document')}")


@app.command()
def check(
    lessons: Annotated[Path, typer.Argument(metavar="LESSONS", help="What `lessons` wrote.")],
    adapter: Adapter = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Most lessons. Default: all.")] = None,
) -> None:
    """Count the replies of lessons that a policy gives word for word."""
    from memagent_smol.exact import measure_exact

    with report_end():
        for row in measure_exact(lessons, adapter, limit=limit):
            typer.echo(f"{row.kind}\t{row.right} of {row.n} exact, {row.kept} kept")


@app.command()
def measure(
    out: Out,
    adapter: Adapter = None,
    cells: Annotated[
        str,
        typer.Option(
            help="short, long, unanswered, curve, notes, ruler-4k, ruler-16k, ruler-64k, 256k, 1m; commas between."
        ),
    ] = "short",
    systems: Annotated[
        str | None,
        typer.Option(
            help="As memagent-bench has them. Default: memory-gate, or memory if untrained."
        ),
    ] = None,
    sources: Annotated[
        Path, typer.Option(metavar="DIR", help="What `lessons` wrote beside the lessons.")
    ] = Path("build/smol/sources"),
    wording: Annotated[
        bool,
        typer.Option(
            "--small", help="Read with the prompt set `small`, as the untrained model does."
        ),
    ] = False,
) -> None:
    """Have a policy answer held-out samples; a second call does what is left."""
    from memagent.cli.session import drive
    from memagent.errors import ConfigError
    from memagent_bench.cli.measure import leave
    from memagent_bench.cli.results import show_gaps
    from memagent_smol.measure import CELLS, MEMORY_GATE, UNTRAINED, plan_held_out
    from memagent_smol.measure import measure as run

    with report_end():
        names = [name.strip() for name in cells.split(",")]
        if unknown := [name for name in names if name not in CELLS]:
            raise ConfigError(f"--cells {unknown[0]!r}: give some of {', '.join(CELLS)}")
        small = wording or adapter is None
        chosen = systems or (UNTRAINED if small else MEMORY_GATE)
        grid = plan_held_out(
            sources,
            [cell for name in names for cell in CELLS[name]],
            [name.strip() for name in chosen.split(",")],
        )
        summary = drive(run(grid, out, adapter=adapter, trained=not small))
        show_gaps(summary, None)
        leave(summary)


@app.command("table")
def show_table(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Records, one an arm.")],
) -> None:
    """Print the right answers of all arms, a table in Markdown for each length."""
    from memagent_smol.table import tables

    with report_end():
        typer.echo(tables(folders))


@app.command("answers")
def show_answers(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Records, one an arm.")],
) -> None:
    """Print what the answers to `changes` say, in Markdown: the last value, an outdated one, or another's."""
    from memagent_smol.answers import answers

    with report_end():
        typer.echo("\n".join(answers(folders)))


@app.command("picture")
def show_picture(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="Records, one an arm.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The picture: a PNG file.")],
) -> None:
    """Draw the right answers of arms by task and length."""
    from memagent_smol.picture import picture

    with report_end():
        picture(folders, out)


@app.command("verdict")
def show_verdict(
    rewarded: Annotated[
        Path, typer.Argument(metavar="REWARDED", help="Records of imitation and rewards.")
    ],
    more: Annotated[
        Path, typer.Argument(metavar="MORE", help="Records of as much more imitation.")
    ],
    untrained: Annotated[
        Path, typer.Argument(metavar="UNTRAINED", help="Records of the untrained model.")
    ],
) -> None:
    """Answer the question of ADR 0016."""
    from memagent_smol.verdict import verdict

    with report_end():
        outcome = verdict(rewarded, more, untrained)
        for name, gap in (
            ("more imitation", outcome.more),
            (f"BM25 + {outcome.reader}", outcome.bm25),
        ):
            typer.echo(
                f"less {name}: {100 * gap.mean:+.1f} points "
                f"[{100 * gap.low:+.1f}, {100 * gap.high:+.1f}], {gap.n} pairs"
            )
        typer.echo("positive" if outcome.positive else "No")
