"""The options of `memagent-bench`: data, what to measure, and how."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from memagent.cli import options as opt
from memagent.cli.setup import RunLimits, ServerOptions

if TYPE_CHECKING:
    from memagent_bench.options import DataOptions

WHAT, DATA = "What is measured", "Data"
of_what = partial(opt.option, panel=WHAT)
of_model = partial(opt.option, panel=opt.MODEL)
of_run = partial(opt.option, panel=opt.RUN)
_of_data = partial(opt.option, panel=DATA)
_file = partial(_of_data, metavar="FILE")
LENGTHS = "8k,32k,128k"
SAMPLES = 20
"""Enough to see whether something works; a mean of 20 has a margin of at most ±22 points (95%)."""
MOST_SAMPLES = 10_000
"""More than HotpotQA and SQuAD have, yet few enough to list in advance."""


class Positions(StrEnum):
    """Where RULER's tasks place needles and paragraphs."""

    PUBLISHED = "published"
    SHUFFLED = "shuffled"


@dataclass(frozen=True, kw_only=True)
class DataChoice:
    """Options that determine the samples."""

    seed: Annotated[int, _of_data("Seed of the samples and of the model.", default=True)] = 42
    length_tokenizer: Annotated[
        str | None,
        _of_data(
            "What measures lengths: a tokenizer file or folder, tiktoken:NAME, or bytes. Default: GPT-2's.",
            "SPEC",
        ),
    ] = None
    positions: Annotated[
        Positions,
        _of_data(
            "published puts things where RULER does, often at the same place in every sample.",
            default=True,
        ),
    ] = Positions.PUBLISHED
    nested: Annotated[
        bool, _of_data("Ask the same questions at every length, under more filler.", "", "--nested")
    ] = False
    allow_repeats: Annotated[
        bool, _of_data("Allow repeated filler paragraphs.", "", "--allow-repeats")
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
        """Returns the options in the form that tasks take.

        Raises:
            ConfigError: the tokenizer doesn't exist.
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


@dataclass(frozen=True, kw_only=True)
class RunChoice(DataChoice, ServerOptions, RunLimits):
    """Options shared by all commands that run a benchmark, apart from its data."""

    model: opt.Model = None
    tokenizer: opt.Tokenizer = None
    out: Annotated[Path, of_run("Folder for the records; an existing one is resumed.", "DIR")]
    concurrency: Annotated[int, of_run("Concurrent calls.", "N", low=1, default=True)] = 16
    dry_run: Annotated[
        bool,
        of_run("Print what would run and what it would cost. No model is called.", "", "--dry-run"),
    ] = False
    display: opt.DisplayOption = None


@dataclass(frozen=True, kw_only=True)
class Measure(RunChoice):
    """The options of `ruler`, `qa`, `tracking` and `notes`."""

    lengths: Annotated[
        str,
        of_what(
            "In tokens: 8192, 8k, 1m; `...` doubles, as in 8k,...,4m.", "L,L,...", default=True
        ),
    ] = LENGTHS
    tasks: Annotated[str, of_what("Tasks to run.", "all|T,T,...", default=True)] = "all"
    systems: Annotated[
        str,
        of_what(
            "Systems to measure: [b]memagent-bench systems[/] lists them.", "S,S,...", default=True
        ),
    ] = "memory"
    samples: Annotated[
        int,
        of_what(
            "Samples of each task at each length.",
            "N",
            "-n",
            "--samples",
            low=1,
            high=MOST_SAMPLES,
            default=True,
        ),
    ] = SAMPLES
    first: Annotated[
        int,
        of_what(
            "Index of the first sample, so that several machines can share the work.",
            "INDEX",
            low=0,
            high=MOST_SAMPLES,
            default=True,
        ),
    ] = 0
    no_context: Annotated[
        bool,
        of_what(
            "Also ask the same questions without the documents, to measure the model's prior knowledge.",
            "",
            "--no-context",
        ),
    ] = False
    window: opt.Window = None
    chunk_tokens: opt.ChunkTokens = None
    memory_tokens: opt.MemoryTokens = None
    cuts: Annotated[
        opt.Cuts | None,
        opt.option(
            "Cut at sentence ends, or exactly at the limit. Default: as the model was trained, else exact.",
            panel=opt.BUDGET,
        ),
    ] = None
    prompts: opt.Prompts = None
    trust: opt.TrustOption = None
    degenerate: opt.DegenerateOption = None
    reread: opt.Reread = None
    temperature: opt.Temperature = None
    top_p: Annotated[
        float | None,
        of_model(
            "Nucleus sampling. Default: as the model was trained, else 0.95.", "X", low=0, high=1
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
        Path, typer.Argument(metavar="FILE", help="JSON lines with context, question and outputs.")
    ]


@dataclass(frozen=True, kw_only=True)
class Generate(DataChoice):
    """The options of `generate`."""

    suite: Annotated[str, typer.Argument(metavar="SUITE", help="ruler, qa, tracking or notes.")]
    task: Annotated[str, opt.option("A task: [b]memagent-bench tasks[/] lists them.", "T")]
    length: Annotated[str, opt.option("In tokens: 8192, 8k, 1m.", "L")]
    samples: Annotated[
        int, opt.option("Number of samples.", "N", "-n", "--samples", low=1, default=True)
    ] = 1
    out: Annotated[Path, opt.option("JSON lines, one per sample.", "FILE")]
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
        of_what(
            "The wording that the checkpoint was trained with (TOML); plain and boxed are ours.",
            "FILE",
        ),
    ] = None
    suites: Annotated[str, of_what("Suites to run.", "qa,ruler", default=True)] = "all"
    lengths: Annotated[
        str | None, of_what("Run only these of the published lengths.", "L,L,...")
    ] = None
    speed: Annotated[
        float | None,
        of_run(
            "The server's tokens per second, for the estimate. Default: measured with --concurrency calls.",
            "X",
            low=1,
        ),
    ] = None
    yes: Annotated[bool, of_run("Start without asking.", None, "--yes")] = False
