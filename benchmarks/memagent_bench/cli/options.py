"""The options of `memagent-bench`: data, what to measure, and how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.setup import Served

if TYPE_CHECKING:
    from memagent.models.limit import Limits
    from memagent_bench.options import DataOptions

WHAT, DATA, LIMITS = "What is measured", "Data", "Limits"
LENGTHS = "8k,32k,128k"
SAMPLES = 20
"""Enough to see whether something works; a mean of 20 has a margin of at most ±22 points (95%)."""
MOST_SAMPLES = 10_000
"""More than HotpotQA and SQuAD have, and few enough to list in advance."""


class Positions(StrEnum):
    """Where RULER's tasks put things."""

    PUBLISHED = "published"
    SHUFFLED = "shuffled"


def _file(text: str) -> typer.models.OptionInfo:
    return typer.Option(metavar="FILE", help=text, rich_help_panel=DATA, show_default=False)


@dataclass(frozen=True, kw_only=True)
class DataChoice:
    """What samples depend on."""

    seed: Annotated[
        int, typer.Option(help="Seed of the samples and of the model.", rich_help_panel=DATA)
    ] = 42
    length_tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="What measures lengths: a tokenizer file or folder, tiktoken:NAME, or bytes. Default: GPT-2's.",
            rich_help_panel=DATA,
            show_default=False,
        ),
    ] = None
    positions: Annotated[
        Positions,
        typer.Option(
            help="published puts things where RULER does, often at the same place in every sample.",
            rich_help_panel=DATA,
        ),
    ] = Positions.PUBLISHED
    nested: Annotated[
        bool,
        typer.Option(
            "--nested",
            metavar="",
            help="Ask the same questions at every length, under more filler.",
            rich_help_panel=DATA,
        ),
    ] = False
    allow_repeats: Annotated[
        bool,
        typer.Option(
            "--allow-repeats",
            metavar="",
            help="Allow repeated filler paragraphs.",
            rich_help_panel=DATA,
        ),
    ] = False
    essays: Annotated[
        list[Path] | None,
        _file("Text of the essay haystack; may be repeated. Default: a shipped book."),
    ] = None
    frames: Annotated[Path | None, _file("Wording of RULER's tasks (TOML). Default: ours.")] = None
    hotpotqa: Annotated[
        list[Path] | None, _file("HotpotQA (JSON, also gzipped); may be repeated.")
    ] = None
    squad: Annotated[Path | None, _file("SQuAD v2 (JSON, also gzipped).")] = None
    paragraphs: Annotated[
        list[Path] | None, _file("More paragraphs to hide the gold ones among.")
    ] = None

    def data(self) -> DataOptions:
        """The options as tasks take them.

        Raises:
            ConfigError: there is no such tokenizer.
        """
        from memagent_bench.length_tokens import length_counter
        from memagent_bench.options import DataOptions

        return DataOptions(
            counter=length_counter(self.length_tokenizer),
            seed=self.seed,
            positions=self.positions.value,
            nested=self.nested,
            allow_repeats=self.allow_repeats,
            essays=tuple(self.essays or ()),
            frames=self.frames,
            hotpotqa=tuple(self.hotpotqa or ()),
            squad=self.squad,
            paragraphs=tuple(self.paragraphs or ()),
        )


def _limit(text: str, *names: str, low: float = 0) -> typer.models.OptionInfo:
    return typer.Option(
        *names, metavar="N", min=low, help=text, rich_help_panel=LIMITS, show_default=False
    )


@dataclass(frozen=True, kw_only=True)
class RunChoice(DataChoice, Served):
    """What every command that runs a benchmark has, apart from its data."""

    model: opt.Model = None
    tokenizer: opt.Tokenizer = None
    out: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="Folder for the records; an existing one is resumed.",
            rich_help_panel=opt.RUN,
        ),
    ]
    concurrency: Annotated[
        int, typer.Option(metavar="N", min=1, help="Concurrent calls.", rich_help_panel=opt.RUN)
    ] = 16
    max_calls: Annotated[int | None, _limit("Stop after N calls; can be resumed.", low=1)] = None
    max_tokens: Annotated[
        int | None, _limit("Stop after N prompt and completion tokens; can be resumed.", low=1)
    ] = None
    max_seconds: Annotated[float | None, _limit("Stop after N seconds; can be resumed.", low=0)] = (
        None
    )
    max_cost: Annotated[
        float | None, _limit("Stop once N is spent, at the given prices; can be resumed.", low=0)
    ] = None
    prompt_price: Annotated[float | None, _limit("Price per million prompt tokens.", low=0)] = None
    completion_price: Annotated[
        float | None, _limit("Price per million completion tokens.", low=0)
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            metavar="",
            help="Print what would run and what it would cost. No model is called.",
            rich_help_panel=opt.RUN,
        ),
    ] = False
    display: opt.DisplayOption = None

    def limits(self) -> Limits:
        """The limits that are set.

        Raises:
            ConfigError: a cost without prices.
        """
        from memagent.models.limit import Limits

        return Limits(
            calls=self.max_calls,
            tokens=self.max_tokens,
            seconds=self.max_seconds,
            cost=self.max_cost,
            prompt_price=self.prompt_price,
            completion_price=self.completion_price,
        )


@dataclass(frozen=True, kw_only=True)
class Measure(RunChoice):
    """The options of `ruler`, `qa`, `tracking` and `notes`."""

    lengths: Annotated[
        str,
        typer.Option(
            metavar="L,L,...",
            help="In tokens: 8192, 8k, 1m; `...` doubles, as in 8k,...,4m.",
            rich_help_panel=WHAT,
        ),
    ] = LENGTHS
    tasks: Annotated[
        str,
        typer.Option(metavar="all|T,T,...", help="Tasks to run.", rich_help_panel=WHAT),
    ] = "all"
    systems: Annotated[
        str,
        typer.Option(
            metavar="S,S,...",
            help="Systems to measure: [b]memagent-bench systems[/] lists them.",
            rich_help_panel=WHAT,
        ),
    ] = "memory"
    samples: Annotated[
        int,
        typer.Option(
            "-n",
            "--samples",
            metavar="N",
            min=1,
            max=MOST_SAMPLES,
            help="Samples of each task at each length.",
            rich_help_panel=WHAT,
        ),
    ] = SAMPLES
    first: Annotated[
        int,
        typer.Option(
            min=0,
            max=MOST_SAMPLES,
            metavar="INDEX",
            help="Index of the first sample, so that several machines can share the work.",
            rich_help_panel=WHAT,
        ),
    ] = 0
    no_context: Annotated[
        bool,
        typer.Option(
            "--no-context",
            metavar="",
            help="Also ask the same questions without the documents, to measure the model's prior knowledge.",
            rich_help_panel=WHAT,
        ),
    ] = False
    window: opt.Window = None
    chunk_tokens: opt.ChunkTokens = None
    memory_tokens: opt.MemoryTokens = None
    cuts: Annotated[
        opt.Cuts | None,
        typer.Option(
            help="Cut at sentence ends, or exactly at the limit. Default: as the model was trained, else exact.",
            rich_help_panel=opt.BUDGET,
            show_default=False,
        ),
    ] = None
    prompts: opt.Prompts = None
    trust: opt.TrustOption = None
    degenerate: opt.DegenerateOption = None
    reread: opt.Reread = None
    temperature: opt.Temperature = None
    top_p: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            min=0,
            max=1,
            help="Nucleus sampling. Default: as the model was trained, else 0.95.",
            rich_help_panel=opt.MODEL,
            show_default=False,
        ),
    ] = None


def _print_frames(wanted: bool) -> None:
    if wanted:
        from memagent_bench.ruler.frames import shipped_frames

        print(shipped_frames().decode(), end="")
        raise typer.Exit


@dataclass(frozen=True, kw_only=True)
class MeasureFile(Measure):
    """The options of `samples`."""

    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="JSON lines with context, question and outputs."),
    ]


@dataclass(frozen=True, kw_only=True)
class Generate(DataChoice):
    """The options of `generate`."""

    suite: Annotated[str, typer.Argument(metavar="SUITE", help="ruler, qa, tracking or notes.")]
    task: Annotated[
        str, typer.Option(metavar="T", help="A task: [b]memagent-bench tasks[/] lists them.")
    ]
    length: Annotated[str, typer.Option(metavar="L", help="In tokens: 8192, 8k, 1m.")]
    samples: Annotated[
        int, typer.Option("-n", "--samples", metavar="N", min=1, help="Number of samples.")
    ] = 1
    out: Annotated[Path, typer.Option(metavar="FILE", help="JSON lines, one per sample.")]
    print_frames: Annotated[
        bool,
        typer.Option(
            "--print-frames",
            metavar="",
            callback=_print_frames,
            is_eager=True,
            help="Print the shipped wording of the RULER tasks, to edit and use with --frames.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class Reproduce(RunChoice):
    """The options of `reproduce`."""

    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="memagent-7b or memagent-14b.")
    ]
    prompts: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="The wording that the checkpoint was trained with (TOML); plain and boxed are ours.",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None
    suites: Annotated[
        str, typer.Option(metavar="qa,ruler", help="Suites to run.", rich_help_panel=WHAT)
    ] = "all"
    lengths: Annotated[
        str | None,
        typer.Option(
            metavar="L,L,...",
            help="Run only these of the published lengths.",
            rich_help_panel=WHAT,
            show_default=False,
        ),
    ] = None
    speed: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            min=1,
            help="The server's tokens per second, for the estimate. Default: measured with --concurrency calls.",
            rich_help_panel=opt.RUN,
            show_default=False,
        ),
    ] = None
    yes: Annotated[
        bool, typer.Option("--yes", help="Start without asking.", rich_help_panel=opt.RUN)
    ] = False
